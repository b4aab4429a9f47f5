/* Every operator that works element by element, and the table of them. Included by isa/operators/NAME.c after a file of word/ and
   one of lanes/. */
#pragma once
#include "add.h"
#include "operators.h"

#define CBQ_OPERATOR_TABLE { \
    .add = CBQ_MIX_ROW(add)}
