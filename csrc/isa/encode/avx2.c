/* The encoders in AVX2. */
#include "../target.h"
#if CBQ_X86
CBQ_TARGET_BEGIN("avx2,fma,f16c")
#include "../../word/avx2.h"
#include "../../lanes/avx2.h"
#include "../../encode/all.h"

const cbq_encoders cbq_encoders_avx2 = CBQ_ENCODER_TABLE;
CBQ_TARGET_END
#endif
