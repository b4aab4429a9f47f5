/* AVX-512 VNNI: dot products for the panels of AVX-512. Compiled into every x86-64 build; run only where the cpu has it. */
#include "target.h"
#if CBQ_X86
CBQ_TARGET_BEGIN("avx512vnni,avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx2,fma,f16c,bmi2")
#include "../word/avx512.h"
#include "../dot/avx512vnni.h"
#include "../kernels/int_product.h"

const cbq_int_kernels cbq_int_avx512vnni = CBQ_INT_TABLE;
CBQ_TARGET_END
#endif
