/* The codecs in NEON. */
#include "../target.h"
#if CBQ_ARM
#include "../../word/neon.h"
#include "../../lanes/neon.h"
#include "../../codecs/all.h"

const cbq_codecs cbq_codecs_neon = CBQ_CODEC_TABLE;
#endif
