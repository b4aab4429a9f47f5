/* What the encoders of superblocks of 256 elements with codes from a grid begin with. */
#pragma once
#include "../neighbours.h"
#include "weights.h"

typedef struct {
    const float *x, *importance; /* importance may be NULL */
    float sum_of_squares;
    uint8_t *out;
} superblock;
typedef void encode_superblock_fn(const superblock *s, const cbq_neighbours *t);

/* Of n superblocks, CBQ_LANES or fewer: the sum of squares of each, in the order of its elements. */
CBQ_FN void sums_of_squares(const float *x, int64_t n, float sums[CBQ_LANES]) {
    if (n >= CBQ_LANES) {
        f_st_f32(sums, f_sums_of_squares(x, 256, 256));
        return;
    }
    for (int64_t b = 0; b < n; b++) {
        sums[b] = 0;
        for (int i = 0; i < 256; i++) sums[b] += x[256 * b + i] * x[256 * b + i];
    }
}

CBQ_FN superblock superblock_at(const cbq_encode_args *a, int bytes, int64_t i, float sum_of_squares) {
    return (superblock){.x = a->x + 256 * i,
                        .importance = a->importance ? a->importance + i % a->row_blocks * 256 : NULL,
                        .sum_of_squares = sum_of_squares,
                        .out = a->out + bytes * i};
}

/* -1 where there is no memory for the table of neighbours. */
CBQ_FN int each_superblock(const cbq_encode_args *a, int bytes, cbq_grid grid, encode_superblock_fn *encode) {
    const cbq_neighbours *t = cbq_neighbours_of(grid);
    if (!t) return -1;
    float sums[CBQ_LANES];
    for (int64_t i = 0; i < a->n; i++) {
        if (i % CBQ_LANES == 0) sums_of_squares(a->x + 256 * i, a->n - i, sums);
        const superblock s = superblock_at(a, bytes, i, sums[i % CBQ_LANES]);
        encode(&s, t);
    }
    return 0;
}

/* A superblock on its way, element by element. */
typedef struct {
    float x[256];  /* magnitudes, but see even_signs */
    float w[256];  /* weights */
    float wx[256]; /* weight * magnitude */
    float root[256]; /* of the weight: the weight of a distance to the grid */
    uint8_t signs[32]; /* bit i of byte k: x[8 k + i] was negative */
} weighted;

CBQ_FN void take_signs(weighted *b, const float *x) {
    for (int i = 0; i < 256; i += 32) {
        uint32_t signs = 0;
        for (int k = i; k < i + 32; k += CBQ_LANES) {
            F v = f_ld(x + k);
            M negative = m_lt(v, f_zero());
            signs |= m_bits(negative) << (k - i);
            f_st_f32(b->x + k, f_select(negative, f_neg(v), v));
        }
        memcpy(b->signs + i / 8, &signs, 4);
    }
}

/* Formats that keep seven signs of eight: the number of negative ones is even. Where it is not, the least important element
   changes sides and goes on as a negative magnitude. */
CBQ_FN void even_signs(weighted *b, const float *x) {
    float importance[256] __attribute__((aligned(64)));
    for (int i = 0; i < 256; i += CBQ_LANES) f_st_f32(importance + i, f_mul(f_mul(f_ld(b->w + i), f_ld(x + i)), f_ld(x + i)));
    for (int k = 0; k < 32; k++) {
        if (!__builtin_parity(b->signs[k])) continue;
        const float *of = importance + 8 * k;
        int least = 0;
        for (int i = 1; i < 8; i++) least = of[i] < of[least] ? i : least;
        b->x[8 * k + least] = -b->x[8 * k + least];
        b->signs[k] = (uint8_t)(b->signs[k] ^ 1 << least);
    }
}

CBQ_FN void weigh_magnitudes(weighted *b) {
    for (int i = 0; i < 256; i += CBQ_LANES) {
        F w = f_ld(b->w + i);
        f_st_f32(b->root + i, f_sqrt(w));
        f_st_f32(b->wx + i, f_mul(w, f_ld(b->x + i)));
    }
}

/* The largest of n elements, 16 or 32, with its sign. */
CBQ_FN float largest(const float *x, int n) {
    F most = f_ld(x);
    for (int i = CBQ_LANES; i < n; i += CBQ_LANES) most = f_max(f_ld(x + i), most);
    return f_largest(most);
}
