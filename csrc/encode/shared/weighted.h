/* Superblocks on their way into the iq2 formats: magnitudes, signs and weights of their elements, and in the end rows of the
   grid, signs and scales. */
#pragma once
#include "superblocks.h"

typedef struct {
    float x[CBQ_TILE_ELEMENTS];        /* magnitudes, but see even_signs */
    float w[CBQ_TILE_ELEMENTS];        /* weights */
    uint8_t signs[CBQ_TILE_ELEMENTS / 8]; /* bit i of byte k: x[8 k + i] was negative */
    uint8_t kept_signs[CBQ_TILE_ELEMENTS / 8]; /* as they are written */
    uint16_t rows[CBQ_TILE_ELEMENTS / 8];
    float scales[CBQ_TILE_ELEMENTS / 16]; /* by group */
} __attribute__((aligned(64))) weighted;

CBQ_FN void take_signs(weighted *b, const superblocks *s) {
    for (int i = 0; i < 256 * s->n; i += 32) {
        uint32_t signs = 0;
        for (int k = 0; k < 32; k += CBQ_LANES) {
            F v = f_ld(s->x + i + k);
            M negative = m_lt(v, f_zero());
            signs |= m_bits(negative) << k;
            f_st_f32(b->x + i + k, f_select(negative, f_neg(v), v));
        }
        memcpy(b->signs + i / 8, &signs, 4);
    }
}

/* Formats that keep seven signs of eight: the number of negative ones is even. Where it is not, the least important element
   changes sides and goes on as a negative magnitude. */
CBQ_FN void even_signs(weighted *b, const superblocks *s) {
    for (int k = 0; k < 32 * s->n; k++) {
        if (!__builtin_parity(b->signs[k])) continue;
        const float *x = s->x + 8 * k, *w = b->w + 8 * k;
        int least = 0;
        float its = w[0] * x[0] * x[0];
        for (int i = 1; i < 8; i++) {
            const float importance = w[i] * x[i] * x[i];
            least = importance < its ? i : least;
            its = importance < its ? importance : its;
        }
        b->x[8 * k + least] = -b->x[8 * k + least];
        b->signs[k] = (uint8_t)(b->signs[k] ^ 1 << least);
    }
}

/* The groups of n elements with one of `least` or more; the others become zeros. */
CBQ_FN void list_groups(weighted *b, int blocks, int n, float least, group_list *list) {
    memset(b->rows, 0, sizeof b->rows), memset(b->kept_signs, 0, sizeof b->kept_signs), memset(b->scales, 0, sizeof b->scales);
    list->n = 0, list->at[0] = 0;
    for (int group = 0; group < 256 / n * blocks; group++) {
        const float *x = b->x + n * group;
        F most = f_ld(x);
        for (int i = CBQ_LANES; i < n; i += CBQ_LANES) most = f_max(f_ld(x + i), most);
        if (m_any(m_not_lt(most, f_set1(least)))) list->at[list->n++] = (uint16_t)group;
    }
    fill_up(list);
}
