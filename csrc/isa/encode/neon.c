/* The encoders in NEON. */
#include "../target.h"
#if CBQ_ARM
#include "../../word/neon.h"
#include "../../lanes/neon.h"
#include "../../encode/all.h"

const cbq_encoders cbq_encoders_neon = CBQ_ENCODER_TABLE;
#endif
