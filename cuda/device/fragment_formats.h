/* The formats that have a layout for fragments (fragments.cuh), each with its class of codes, how many bits a code has, and
   where in a block its header is: all bytes that are no codes. For C and CUDA.

     HALVES  unsigned codes of 4 to 6 bits, which are subnormal numbers of binary16
     TABLE   16 values; the 16 weights of a group are made once
     E2M1    signs, exponents and mantissas where bf16 has them
     BYTES   codes of 8 bits */
#pragma once

#define CBQ_FRAGMENTS(ROW) \
    ROW(q4_0, HALVES, 4, 0, 2) ROW(q4_1, HALVES, 4, 0, 4) ROW(q4_k, HALVES, 4, 0, 16) \
    ROW(q5_0, HALVES, 5, 0, 2) ROW(q5_1, HALVES, 5, 0, 4) ROW(q5_k, HALVES, 5, 0, 16) ROW(q6_k, HALVES, 6, 192, 18) \
    ROW(iq4_nl, TABLE, 4, 0, 2) ROW(iq4_xs, TABLE, 4, 0, 8) \
    ROW(mxfp4, E2M1, 4, 0, 1) ROW(nvfp4, E2M1, 4, 0, 4) \
    ROW(q8_0, BYTES, 8, 0, 2)
