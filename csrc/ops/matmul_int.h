/* Products in integers: q8 and q16. Arguments are checked. */
#pragma once
#include "matmul.h"

cbq_code cbq_matmul_int(const cbq_matmul_args *args, int threads, cbq_status *st);
