/* Encoders that work on as many blocks at a time as there are lanes, or twice as many. What is left over at the end is padded
   with copies of the last one. */
#pragma once
#include "encode.h"

enum { CBQ_TILE_BLOCKS = CBQ_LANES, CBQ_MOST_TILE_BLOCKS = 2 * CBQ_LANES };

/* importance[b] belongs to block b; all of them are NULL where there is none. */
typedef struct {
    const float *x;
    const float *importance[CBQ_MOST_TILE_BLOCKS];
    float row_mean[CBQ_MOST_TILE_BLOCKS]; /* the mean square of the row of each block, where the encoder asked for it */
    uint8_t *out;
} cbq_encode_tile;
typedef void cbq_encode_tile_fn(const cbq_encode_tile *tile);

/* Of one encoder: blocks of a tile, and the size of each. */
typedef struct { int blocks, elements, bytes; } cbq_tile_shape;

/* row_means: of the rows of x, or NULL. */
CBQ_FN int encode_tiles_with(const cbq_encode_args *a, const float *row_means, cbq_tile_shape s, cbq_encode_tile_fn *encode) {
    float padded[CBQ_LANES * 256] __attribute__((aligned(64)));
    uint8_t out[CBQ_LANES * 256];
    for (int64_t i = 0; i < a->n; i += s.blocks) {
        const int64_t left = a->n - i;
        cbq_encode_tile tile = {.x = a->x + i * s.elements, .out = a->out + i * s.bytes};
        for (int b = 0; b < s.blocks; b++) {
            int64_t block = i + (b < left ? b : left - 1);
            tile.importance[b] = a->importance ? a->importance + block % a->row_blocks * s.elements : NULL;
            tile.row_mean[b] = row_means ? row_means[block / a->row_blocks] : 0;
        }
        if (left >= s.blocks) {
            encode(&tile);
            continue;
        }
        for (int b = 0; b < s.blocks; b++)
            memcpy(padded + b * s.elements, tile.x + (b < left ? b : left - 1) * s.elements, (size_t)s.elements * sizeof(float));
        uint8_t *end = tile.out;
        tile.x = padded, tile.out = out;
        encode(&tile);
        memcpy(end, out, (size_t)(left * s.bytes));
    }
    return 0;
}
/* Superblocks, one to a lane. */
CBQ_FN int encode_tiles(const cbq_encode_args *a, int elements, int bytes, cbq_encode_tile_fn *encode) {
    return encode_tiles_with(a, NULL, (cbq_tile_shape){CBQ_TILE_BLOCKS, elements, bytes}, encode);
}
