/* Attention in plain C: the readable form, and what the others are compared with. */
#include "../../word/scalar.h"
#include "../../lanes/scalar.h"
#include "../../attention/all.h"

const cbq_attention cbq_attention_scalar = CBQ_ATTENTION_TABLE;
