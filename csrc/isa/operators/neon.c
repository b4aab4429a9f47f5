/* The operators of cbquant.deepseek in NEON. */
#include "../target.h"
#if CBQ_ARM
#include "../../word/neon.h"
#include "../../lanes/neon.h"
#include "../../operators/all.h"

const cbq_operators cbq_operators_neon = CBQ_OPERATOR_TABLE;
#endif
