/* Products in floats: f32 (exact weights) and bf16 (weights and x rounded once), sums in f32. Arguments are checked. */
#pragma once
#include "matmul.h"

cbq_code cbq_matmul_float(const cbq_matmul_args *args, int threads, cbq_status *st);
