/* NEON, which every AArch64 core has. */
#include "target.h"
#if CBQ_ARM
#include "../word/neon.h"
#include "../kernels/all.h"
#include "../dot/neon.h"
#include "../kernels/int_product.h"

const cbq_kernels cbq_kernels_neon = CBQ_KERNEL_TABLE;
const cbq_int_kernels cbq_int_neon = CBQ_INT_TABLE;
#endif
