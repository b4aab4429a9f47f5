/* AVX-VNNI: dot products for the panels of AVX2. Compiled into every x86-64 build; run only where the cpu has it. */
#include "target.h"
#if CBQ_X86
CBQ_TARGET_BEGIN("avxvnni,avx2,fma,f16c")
#include "../word/avx2.h"
#include "../dot/avxvnni.h"
#include "../kernels/int_product.h"

const cbq_int_kernels cbq_int_avxvnni = CBQ_INT_TABLE;
CBQ_TARGET_END
#endif
