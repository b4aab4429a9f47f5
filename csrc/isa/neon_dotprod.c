/* NEON's dot products, for the panels of NEON. */
#include "target.h"
#if CBQ_ARM
CBQ_ARM_TARGET_BEGIN(dotprod)
#include "../word/neon.h"
#include "../dot/neon_dotprod.h"
#include "../kernels/int_product.h"

const cbq_int_kernels cbq_int_neon_dotprod = CBQ_INT_TABLE;
CBQ_TARGET_END
#endif
