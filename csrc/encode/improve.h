/* Blocks with a smaller squared error than the reference's: the sum of importance * (x - decoded)^2 over the block.

   An encoder writes the reference's blocks; then each is read, improved and written again, if that is worth it, by plain C that
   is compiled once. It knows formats by their rows and the words of formats/shared/fields.h only:

     improve/formats.c   every format that has an encoder, made of the list of formats
     improve/improve.c   blocks to scales and back. The last word is an error in double over the floats that the decoder gives,
                         of the reference's block and of the new one, so that nothing before it has to be exact
     improve/group.c     one group under given scales: nearest codes, their sums
     improve/start.c     the scale (and minimum) that a group would have if it were alone
     improve/scales.c    formats with a d: integers of the groups, d and dmin by turns
     improve/bytes.c     formats whose groups have a byte for a scale: all bytes that may be best are tried

   Blocks do not depend on each other and sums have one order, so that bytes are the same for every instruction set and number
   of threads. Codes of grids stay as they are. */
#pragma once
#include "encode.h"

#if defined(__GNUC__)
#pragma GCC visibility push(hidden)
#endif
/* Improves the n blocks at args->out, which an encoder has just written from the same arguments. A block where x is not finite
   stays as it is; so does one for which nothing better is found. */
void cbq_improve(int format, const cbq_encode_args *args);
#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
