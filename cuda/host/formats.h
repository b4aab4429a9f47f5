/* The list of formats, as the module sees it. */
#pragma once
#include "registry.h"

/* The format of that tag; NULL with a ValueError. */
const cbq_format *cbq_cuda_format(int tag);
