/* q5_k */
#pragma once
#include "shared/k_blocks.h"

CBQ_FN void q5_k_write_at(uint8_t *block, const cbq_fields *fields) { cbq_q5_k_write((cbq_q5_k_block *)block, fields); }
static const cbq_k_format q5_k_format = {.most = 31, .plain = {-0.5f, 0.1f, 15, 0}, .cut_off = 1,
                                          .bytes = sizeof(cbq_q5_k_block), .write = q5_k_write_at};

static void q5_k_plain(const cbq_encode_tile *t) { k_tile(t, 0, q5_k_format); }
static void q5_k_weighted(const cbq_encode_tile *t) { k_tile(t, 1, q5_k_format); }
static int encode_q5_k(const cbq_encode_args *a) {
    return encode_tiles(a, 256, sizeof(cbq_q5_k_block), a->importance ? q5_k_weighted : q5_k_plain);
}
