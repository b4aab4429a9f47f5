/* q1_0: the mean magnitude and the signs. The sum is in the order of the elements, so lanes hold blocks. An importance matrix
   changes nothing. */
#pragma once
#include "tiles.h"

static void q1_0_tile(const cbq_encode_tile *t) {
    float columns[8 * CBQ_LANES] __attribute__((aligned(64))), d[CBQ_LANES];
    F sum = f_zero();
    for (int i = 0; i < 128; i += 8) {
        f_transpose(t->x + i, 128, columns, CBQ_LANES);
        for (int k = 0; k < 8; k++) sum = f_add(sum, f_abs(f_ld(columns + k * CBQ_LANES)));
    }
    f_st_f32(d, f_div(sum, f_set1(128)));
    for (int b = 0; b < CBQ_TILE_BLOCKS; b++) {
        const float *x = t->x + 128 * b;
        uint32_t positive[4] = {0, 0, 0, 0};
        for (int i = 0; i < 128; i += CBQ_LANES) positive[i / 32] |= m_bits(m_le(f_zero(), f_ld(x + i))) << i % 32;
        cbq_q1_0_pack((cbq_q1_0_block *)t->out + b, positive, cbq_f32_to_f16(d[b]));
    }
}
static int encode_q1_0(const cbq_encode_args *a) { return encode_tiles(a, 128, sizeof(cbq_q1_0_block), q1_0_tile); }
