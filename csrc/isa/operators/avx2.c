/* The operators of cbquant.deepseek in AVX2. */
#include "../target.h"
#if CBQ_X86
CBQ_TARGET_BEGIN("avx2,fma,f16c")
#include "../../word/avx2.h"
#include "../../lanes/avx2.h"
#include "../../operators/all.h"

const cbq_operators cbq_operators_avx2 = CBQ_OPERATOR_TABLE;
CBQ_TARGET_END
#endif
