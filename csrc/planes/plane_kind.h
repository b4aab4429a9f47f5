/* A format of planes as the kernels see it: a constant struct, passed by value to force-inlined functions, so that nothing of it is
   left at run time. */
#pragma once
#include "../kernels/bytes_block.h"
#include "planes.h"
#include "tables.h"

typedef struct {
    cbq_code_kind code; /* all zeros where there is a book that no kind of codes has */
    const float *book;  /* the values of codes of 4 bits */
    const uint8_t *by_value; /* its codes by rising value: for encoding, of a book alone */
    int bits, order, group, finish, multiple;
} plane_kind;
