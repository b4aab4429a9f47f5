/* iq3_s: a sign for each element; grid rows by trial scales; 4-bit scales of groups. */
#pragma once
#include "shared/iq3_group.h"

enum { IQ3_S_TRIALS = 19, IQ3_S_ALL = (1 << IQ3_QUADS) - 1 };

/* A group of zeros takes no place among the low bits and the signs of the groups, but does among their high bits and scales:
   so the reference has it, and decoding such a superblock gives other numbers. The bytes follow. */
static void iq3_s_block(const iq3_plan *p, const float *x, const float *importance, cbq_iq3_s_block *out) {
    float w[256], scales[8], largest = 0;
    uint8_t low[64] = {0}, high[8] = {0}, rounded[8] = {0};
    uint32_t signs[8] = {0};
    memset(out, 0, sizeof *out);
    if (largest_magnitude(x, 256) == 0) return;
    iq3_weights(x, importance, w);
    for (int k = 0, place = 0; k < 8; k++) {
        iq3_group g;
        memcpy(g.w, w + 32 * k, sizeof g.w);
        uint32_t s = iq3_take_signs(x + 32 * k, &g);
        iq3_complete(&g);
        scales[k] = 0;
        if (g.largest == 0) continue;
        iq3_fit fit = iq3_best_trial(p, &g, (iq3_fit){.scale = g.largest / 15, .off = IQ3_S_ALL});
        if (fit.off && fit.scale > 0) iq3_refit(p, &g, IQ3_S_ALL, &fit);
        signs[place] = fit.scale < 0 ? ~s : s;
        scales[k] = fabsf(fit.scale);
        if (scales[k] > largest) largest = scales[k];
        for (int q = 0; q < IQ3_QUADS; q++) {
            const int row = p->near->index[fit.words[q]];
            low[8 * place + q] = (uint8_t)row;
            high[k] |= (uint8_t)(row >> 8 << q);
        }
        place++;
    }
    if (largest != 0) iq3_round_scales(scales, largest / 31, rounded);
    cbq_iq3_s_pack(out, low, high, signs, rounded, cbq_f32_to_f16(largest / 31 * 1.033f));
}

static int encode_iq3_s(const cbq_encode_args *a) {
    const cbq_neighbours *near = cbq_neighbours_of(CBQ_GRID_IQ3_S);
    if (!near) return -1;
    const iq3_plan plan = iq3_make_plan(near, IQ3_S_TRIALS);
    for (int64_t b = 0; b < a->n; b++) {
        const float *importance = a->importance ? a->importance + b % a->row_blocks * 256 : NULL;
        iq3_s_block(&plan, a->x + 256 * b, importance, (cbq_iq3_s_block *)a->out + b);
    }
    return 0;
}
