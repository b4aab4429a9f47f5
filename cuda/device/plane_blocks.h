/* Weights in planes, as they are on the device: codes of a byte with a float32 scale for 32 of them, in blocks, so that the kernels
   of blocks take them. `cbquant.cuda.load` makes them of planes (csrc/planes) whose scales are f32, f16, bf16 or E8M0 for tiles, rows
   or groups; six-bit codes become the eight-bit ones of the same value. The rows are as those of formats (csrc/registry.h); their tags
   are of no file. For C and CUDA. */
#pragma once

#define CBQ_PLANE_BLOCKS(BLOCK) \
    BLOCK(e4m3_codes, 1000, 32, 36, 32, FLOAT8(E4M3), FLOATS, NOMIN, 0, "E4M3 codes, float32 scales of 32") \
    BLOCK(e5m2_codes, 1001, 32, 36, 32, FLOAT8(E5M2), FLOATS, NOMIN, 0, "E5M2 codes, float32 scales of 32") \
    BLOCK(int8_codes, 1002, 32, 36, 32, SIGNED(8), FLOATS, NOMIN, 0, "8-bit codes, float32 scales of 32")
