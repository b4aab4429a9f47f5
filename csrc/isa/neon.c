/* NEON, which every AArch64 core has. */
#include "target.h"
#if CBQ_ARM
#include "../word/neon.h"
#include "../kernels/to_float.h"

const cbq_kernels cbq_kernels_neon = CBQ_KERNEL_TABLE;
#endif
