/* Attention in NEON. */
#include "../target.h"
#if CBQ_ARM
#include "../../word/neon.h"
#include "../../lanes/neon.h"
#include "../../attention/all.h"

const cbq_attention cbq_attention_neon = CBQ_ATTENTION_TABLE;
#endif
