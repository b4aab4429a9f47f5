/* The codecs in AVX2. */
#include "../target.h"
#if CBQ_X86
CBQ_TARGET_BEGIN("avx2,fma,f16c")
#include "../../word/avx2.h"
#include "../../lanes/avx2.h"
#include "../../codecs/all.h"

const cbq_codecs cbq_codecs_avx2 = CBQ_CODEC_TABLE;
CBQ_TARGET_END
#endif
