/* Attention in AVX2. */
#include "../target.h"
#if CBQ_X86
CBQ_TARGET_BEGIN("avx2,fma,f16c")
#include "../../word/avx2.h"
#include "../../lanes/avx2.h"
#include "../../attention/all.h"

const cbq_attention cbq_attention_avx2 = CBQ_ATTENTION_TABLE;
CBQ_TARGET_END
#endif
