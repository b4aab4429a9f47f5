/* The operators of cbquant.deepseek in plain C: the readable form, and what the others are compared with. */
#include "../../word/scalar.h"
#include "../../lanes/scalar.h"
#include "../../operators/all.h"

const cbq_operators cbq_operators_scalar = CBQ_OPERATOR_TABLE;
