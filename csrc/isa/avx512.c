/* AVX-512 F, BW, VL, DQ, VBMI, and BMI2: every kernel of this instruction set. Compiled into every x86-64 build; run only where the cpu has it. */
#include "target.h"
#if CBQ_X86
CBQ_TARGET_BEGIN("avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx2,fma,f16c,bmi2")
#include "../word/avx512.h"
#include "../kernels/all.h"
#include "../dot/avx512.h"
#include "../kernels/int_product.h"

const cbq_kernels cbq_kernels_avx512 = CBQ_KERNEL_TABLE;
const cbq_int_kernels cbq_int_avx512 = CBQ_INT_TABLE;
CBQ_TARGET_END
#endif
