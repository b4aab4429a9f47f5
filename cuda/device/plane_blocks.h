/* Weights in planes, as they are on the device: codes and their scales in blocks, so that the kernels of blocks take them.
   `cbquant.cuda.load` makes them of planes (csrc/planes): a scale is the float32 of 32 codes, whatever its type was and whether tiles,
   rows, groups or runs have it; codes of six bits become the eight-bit ones of the same value. Codes of four bits are in halves: low
   nibbles are the first elements of a group (of 32, of nvfp4 16), high nibbles the others. The rows are as those of formats
   (csrc/registry.h); their tags are of no file. nvfp4 without a number for the tensor, and mxfp4, are GGUF's blocks. For C and CUDA. */
#pragma once
#include <stdint.h>

#define CBQ_PLANE_BLOCKS(BLOCK) \
    BLOCK(e4m3_codes, 1000, 32, 36, 32, FLOAT8(E4M3), FLOATS, NOMIN, 0, "E4M3 codes, float32 scales of 32") \
    BLOCK(e5m2_codes, 1001, 32, 36, 32, FLOAT8(E5M2), FLOATS, NOMIN, 0, "E5M2 codes, float32 scales of 32") \
    BLOCK(int8_codes, 1002, 32, 36, 32, SIGNED(8), FLOATS, NOMIN, 0, "8-bit codes, float32 scales of 32") \
    BLOCK(nf4_codes, 1003, 32, 20, 32, BOOK(cbq_nf4_values), FLOATS, NOMIN, 0, "NormalFloat4 codes, float32 scales of 32") \
    BLOCK(fp4_codes, 1004, 32, 20, 32, BOOK(cbq_fp4_values), FLOATS, NOMIN, 0, "codes of bitsandbytes' fp4, float32 scales of 32") \
    BLOCK(nvfp4_times, 1005, 64, 40, 16, TABLE_TIMES(cbq_e2m1_values, 2, 5), FLOATS, NOMIN, 0, "E2M1 codes, E4M3 scales of 16, times a float32") \
    BLOCK(nvfp4_over, 1006, 64, 40, 16, TABLE_OVER(cbq_e2m1_values, 2, 5), FLOATS, NOMIN, 0, "E2M1 codes, E4M3 scales of 16, over a float32")

typedef struct { uint8_t codes[32], scale[4]; } cbq_e4m3_codes_block, cbq_e5m2_codes_block, cbq_int8_codes_block;
typedef struct { uint8_t codes[16], scale[4]; } cbq_nf4_codes_block, cbq_fp4_codes_block;
typedef struct { uint8_t scales[4], codes[32], tensor[4]; } cbq_nvfp4_times_block, cbq_nvfp4_over_block;

/* What a block has, with NumPy's names of the types: FIELD(block, member, type). */
#define CBQ_PLANE_FIELDS(FIELD) \
    FIELD(e4m3_codes, codes, "u1") FIELD(e4m3_codes, scale, "<f4") \
    FIELD(e5m2_codes, codes, "u1") FIELD(e5m2_codes, scale, "<f4") \
    FIELD(int8_codes, codes, "u1") FIELD(int8_codes, scale, "<f4") \
    FIELD(nf4_codes, codes, "u1") FIELD(nf4_codes, scale, "<f4") \
    FIELD(fp4_codes, codes, "u1") FIELD(fp4_codes, scale, "<f4") \
    FIELD(nvfp4_times, scales, "u1") FIELD(nvfp4_times, codes, "u1") FIELD(nvfp4_times, tensor, "<f4") \
    FIELD(nvfp4_over, scales, "u1") FIELD(nvfp4_over, codes, "u1") FIELD(nvfp4_over, tensor, "<f4")
