/* The encoders in plain C: the readable form, and what the others are compared with. */
#include "../../word/scalar.h"
#include "../../lanes/scalar.h"
#include "../../encode/all.h"

const cbq_encoders cbq_encoders_scalar = CBQ_ENCODER_TABLE;
