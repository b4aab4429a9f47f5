/* AVX2, FMA, F16C: every kernel of this instruction set. Compiled into every x86-64 build; run only where the cpu has it. */
#include "target.h"
#if CBQ_X86
CBQ_TARGET_BEGIN("avx2,fma,f16c")
#include "../word/avx2.h"
#include "../kernels/all.h"
#include "../dot/avx2.h"
#include "../kernels/int_product.h"

const cbq_kernels cbq_kernels_avx2 = CBQ_KERNEL_TABLE;
const cbq_int_kernels cbq_int_avx2 = CBQ_INT_TABLE;
CBQ_TARGET_END
#endif
