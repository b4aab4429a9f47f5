/* What a block is made of, and what may stand there: for code that changes blocks without knowing their layout.

   Each format that has an encoder has `cbq_NAME_write(block, fields)`, the inverse of its decoder, and a row beside that of
   the list of formats, `#define CBQ_STORE_NAME ..`, of these words:

     FREE(low, high)   codes: each element has its own, as unsigned (or signed) integers from low to high
     BOOK              the same, indices of the row's TABLE
     KEPT              codes that depend on each other or have nothing between them: they are only read, and `write` leaves
                       them as they are
     F16(unit)         d is unit times an f16; fields.d are the bits of it
     BYTES             no d: each group's scale is a byte of fields.s. Bytes stand for larger scales one after the other, from
                       0 up, until one reads as no number or as less than that before
     STEPS(low, high, step, plus)   each group has a byte of fields.s too, from low to high, and s4 reads step * byte + plus
     MINIMUM(unit)     dmin is unit times an f16; fields.dmin are the bits of it
     MINIMUMS(high)    dmin is an f16; each group has a byte of fields.m too, from 0 to high, which m4 reads */
#pragma once
#include <stdint.h>

typedef struct {
    uint8_t codes[256], s[16], m[16];
    uint16_t d, dmin;
} cbq_fields;
