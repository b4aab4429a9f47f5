/* Superblocks on their way into the iq2 formats: magnitudes, signs and weights of their elements. */
#pragma once
#include "superblocks.h"

enum { CBQ_AT_ONCE = CBQ_LANES > 8 ? CBQ_LANES / 8 : 1 }; /* superblocks, so that their groups of 32 fill the lanes */

typedef struct {
    float x[256 * CBQ_AT_ONCE];  /* magnitudes, but see even_signs */
    float w[256 * CBQ_AT_ONCE];  /* weights */
    float wx[256 * CBQ_AT_ONCE]; /* weight * magnitude */
    float root[256 * CBQ_AT_ONCE];    /* of the weight: the weight of a distance to the grid */
    uint8_t signs[32 * CBQ_AT_ONCE]; /* bit i of byte k: x[8 k + i] was negative */
} __attribute__((aligned(64))) weighted;

/* The 256 elements of x become those from `first` on. */
CBQ_FN void take_signs(weighted *b, int first, const float *x) {
    for (int i = 0; i < 256; i += 32) {
        uint32_t signs = 0;
        for (int k = i; k < i + 32; k += CBQ_LANES) {
            F v = f_ld(x + k);
            M negative = m_lt(v, f_zero());
            signs |= m_bits(negative) << (k - i);
            f_st_f32(b->x + first + k, f_select(negative, f_neg(v), v));
        }
        memcpy(b->signs + (first + i) / 8, &signs, 4);
    }
}

/* Formats that keep seven signs of eight: the number of negative ones is even. Where it is not, the least important element
   changes sides and goes on as a negative magnitude. */
CBQ_FN void even_signs(weighted *b, int first, const float *x) {
    float importance[256] __attribute__((aligned(64)));
    for (int i = 0; i < 256; i += CBQ_LANES) f_st_f32(importance + i, f_mul(f_mul(f_ld(b->w + first + i), f_ld(x + i)), f_ld(x + i)));
    for (int k = 0; k < 32; k++) {
        uint8_t *signs = &b->signs[first / 8 + k];
        if (!__builtin_parity(*signs)) continue;
        const float *of = importance + 8 * k;
        int least = 0;
        for (int i = 1; i < 8; i++) least = of[i] < of[least] ? i : least;
        b->x[first + 8 * k + least] = -b->x[first + 8 * k + least];
        *signs = (uint8_t)(*signs ^ 1 << least);
    }
}

CBQ_FN void weigh_magnitudes(weighted *b, int first) {
    for (int i = first; i < first + 256; i += CBQ_LANES) {
        F w = f_ld(b->w + i);
        f_st_f32(b->root + i, f_sqrt(w));
        f_st_f32(b->wx + i, f_mul(w, f_ld(b->x + i)));
    }
}

/* The largest of the n elements of each of CBQ_LANES groups. */
CBQ_FN F largest_of_groups(const float *x, int n) {
    float largest[CBQ_LANES];
    for (int lane = 0; lane < CBQ_LANES; lane++) {
        F most = f_ld(x + n * lane);
        for (int i = CBQ_LANES; i < n; i += CBQ_LANES) most = f_max(f_ld(x + n * lane + i), most);
        largest[lane] = f_largest(most);
    }
    return f_ld(largest);
}
