/* Encoders that work on CBQ_LANES superblocks (or blocks) at a time. What is left over at the end is padded with copies of
   the last one. */
#pragma once
#include "encode.h"

#define CBQ_TILE_BLOCKS CBQ_LANES
#define CBQ_MAX_ELEMENTS 256
#define CBQ_MAX_BLOCK_BYTES 256

/* CBQ_TILE_BLOCKS blocks. importance[b] belongs to block b; all of them are NULL where there is none. */
typedef struct {
    const float *x;
    const float *importance[CBQ_TILE_BLOCKS];
    uint8_t *out;
} cbq_encode_tile;
typedef void cbq_encode_tile_fn(const cbq_encode_tile *tile);

CBQ_FN int encode_tiles(const cbq_encode_args *a, int elements, int bytes, cbq_encode_tile_fn *encode) {
    float padded[CBQ_TILE_BLOCKS * CBQ_MAX_ELEMENTS] __attribute__((aligned(64)));
    uint8_t out[CBQ_TILE_BLOCKS * CBQ_MAX_BLOCK_BYTES];
    for (int64_t i = 0; i < a->n; i += CBQ_TILE_BLOCKS) {
        int64_t left = a->n - i;
        cbq_encode_tile tile = {.x = a->x + i * elements, .out = a->out + i * bytes};
        for (int b = 0; b < CBQ_TILE_BLOCKS; b++) {
            int64_t block = i + (b < left ? b : left - 1);
            tile.importance[b] = a->importance ? a->importance + block % a->row_blocks * elements : NULL;
        }
        if (left >= CBQ_TILE_BLOCKS) {
            encode(&tile);
            continue;
        }
        for (int b = 0; b < CBQ_TILE_BLOCKS; b++)
            memcpy(padded + b * elements, tile.x + (b < left ? b : left - 1) * elements, (size_t)elements * sizeof(float));
        cbq_encode_tile whole = tile;
        whole.x = padded, whole.out = out;
        encode(&whole);
        memcpy(tile.out, out, (size_t)(left * bytes));
    }
    return 0;
}
