/* q4_k */
#pragma once
#include "shared/k_blocks.h"

CBQ_FN void q4_k_write_at(uint8_t *block, const cbq_fields *fields) { cbq_q4_k_write((cbq_q4_k_block *)block, fields); }
static const cbq_k_format q4_k_format = {.most = 15, .plain = {-1.0f, 0.1f, 20, 0}, .cut_off = 0,
                                          .bytes = sizeof(cbq_q4_k_block), .write = q4_k_write_at};

static void q4_k_plain(const cbq_encode_tile *t) { k_tile(t, 0, q4_k_format); }
static void q4_k_weighted(const cbq_encode_tile *t) { k_tile(t, 1, q4_k_format); }
static int encode_q4_k(const cbq_encode_args *a) {
    return encode_tiles(a, 256, sizeof(cbq_q4_k_block), a->importance ? q4_k_weighted : q4_k_plain);
}
