/* Attention in AVX-512. */
#include "../target.h"
#if CBQ_X86
CBQ_TARGET_BEGIN("avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx2,fma,f16c,bmi2")
#include "../../word/avx512.h"
#include "../../lanes/avx512.h"
#include "../../attention/all.h"

const cbq_attention cbq_attention_avx512 = CBQ_ATTENTION_TABLE;
CBQ_TARGET_END
#endif
