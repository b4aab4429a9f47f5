/* iq3_xxs: an even number of signs in each eight elements; grid rows by trial scales; 4-bit scales of groups. */
#pragma once
#include "shared/iq3_group.h"

enum { IQ3_XXS_TRIALS = 31 };

/* Where the number of signs is odd, the element that matters least loses its own, or gets one. */
CBQ_FN uint32_t iq3_xxs_even_signs(const float *x, uint32_t signs, iq3_group *g) {
    for (int e = 0; e < 32; e += 8) {
        if (!__builtin_parity(signs >> e & 255)) continue;
        int least = e;
        float least_cost = g->w[e] * x[e] * x[e];
        for (int i = e + 1; i < e + 8; i++) {
            float cost = g->w[i] * x[i] * x[i];
            if (cost < least_cost) least_cost = cost, least = i;
        }
        g->x[least] = -g->x[least];
        signs ^= 1u << least;
    }
    return signs;
}

static void iq3_xxs_block(const iq3_plan *p, const float *x, const float *importance, cbq_iq3_xxs_block *out) {
    float w[256], scales[8], largest = 0;
    uint8_t rows[64] = {0}, rounded[8];
    uint32_t signs[8] = {0};
    memset(out, 0, sizeof *out);
    if (largest_magnitude(x, 256) < 1e-8f) return;
    iq3_weights(x, importance, w);
    for (int k = 0; k < 8; k++) {
        iq3_group g;
        memcpy(g.w, w + 32 * k, sizeof g.w);
        uint32_t s = iq3_xxs_even_signs(x + 32 * k, iq3_take_signs(x + 32 * k, &g), &g);
        iq3_complete(&g);
        scales[k] = 0;
        if (g.largest < 1e-8f) continue;
        iq3_fit fit = iq3_best_trial(p, &g, (iq3_fit){.scale = g.largest / 15});
        if (fit.off && fit.scale > 0) iq3_refit(p, &g, fit.off, &fit);
        signs[k] = fit.scale < 0 ? ~s : s;
        scales[k] = fabsf(fit.scale);
        if (scales[k] > largest) largest = scales[k];
        for (int q = 0; q < IQ3_QUADS; q++) rows[8 * k + q] = (uint8_t)p->near->index[fit.words[q]];
    }
    if (largest == 0) return;
    iq3_round_scales(scales, largest / 31, rounded);
    cbq_iq3_xxs_pack(out, rows, signs, rounded, cbq_f32_to_f16(largest / 31 * 1.0125f));
}

static int encode_iq3_xxs(const cbq_encode_args *a) {
    const cbq_neighbours *near = cbq_neighbours_of(CBQ_GRID_IQ3_XXS);
    if (!near) return -1;
    const iq3_plan plan = iq3_make_plan(near, IQ3_XXS_TRIALS);
    for (int64_t b = 0; b < a->n; b++) {
        const float *importance = a->importance ? a->importance + b % a->row_blocks * 256 : NULL;
        iq3_xxs_block(&plan, a->x + 256 * b, importance, (cbq_iq3_xxs_block *)a->out + b);
    }
    return 0;
}
