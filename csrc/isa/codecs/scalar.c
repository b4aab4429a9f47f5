/* The codecs in plain C: the readable form, and what the others are compared with. */
#include "../../word/scalar.h"
#include "../../lanes/scalar.h"
#include "../../codecs/all.h"

const cbq_codecs cbq_codecs_scalar = CBQ_CODEC_TABLE;
