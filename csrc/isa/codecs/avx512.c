/* The codecs in AVX-512. */
#include "../target.h"
#if CBQ_X86
CBQ_TARGET_BEGIN("avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx2,fma,f16c,bmi2")
#include "../../word/avx512.h"
#include "../../lanes/avx512.h"
#include "../../codecs/all.h"

const cbq_codecs cbq_codecs_avx512 = CBQ_CODEC_TABLE;
CBQ_TARGET_END
#endif
