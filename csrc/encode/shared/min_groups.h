/* What q2_k, q4_k and q5_k do alike: a scale and a minimum for each group, then integers for these under two scales of the
   superblock, then the codes once more with the scales as they are stored. */
#pragma once
#include "../tiles.h"
#include "largest.h"
#include "min_search.h"
#include "positive_scales.h"
#include "weights.h"

enum { CBQ_MOST_GROUPS = 16 };

/* Of one format: `size` elements to a group, codes and scales from 0 to `most` and `most_scale`. */
typedef struct {
    int size;
    float most;
    int most_scale;
    cbq_min_plan plain, weighted; /* without and with an importance matrix */
    float sigma_factor;
} cbq_min_format;

/* Of all groups of a tile, in order. */
typedef struct {
    float scale[CBQ_TILE_BLOCKS * CBQ_MOST_GROUPS], min[CBQ_TILE_BLOCKS * CBQ_MOST_GROUPS], inverse[CBQ_TILE_BLOCKS * CBQ_MOST_GROUPS];
    float low[CBQ_TILE_BLOCKS * CBQ_MOST_GROUPS], weight[CBQ_TILE_BLOCKS * CBQ_MOST_GROUPS];
} cbq_min_fits;

/* One superblock's integers, as they are stored. */
typedef struct {
    uint8_t s[CBQ_MOST_GROUPS], m[CBQ_MOST_GROUPS];
    uint16_t d, dmin;
} cbq_min_scales;

/* Without an importance matrix: the magnitude, and for groups of 32 the root of the group's mean square on top. */
CBQ_FN void plain_weights(const float *x, int n, float *w) {
    CBQ_EACH_OF(v, 2) {
        F base = f_zero();
        if (n == 32) {
            for (int i = 0; i < n; i++) base = f_add(base, f_mul(lanes_at(x, i, 2, v), lanes_at(x, i, 2, v)));
            base = f_sqrt(f_div(base, f_set1((float)n)));
        }
        for (int i = 0; i < n; i++) {
            F magnitude = f_abs(lanes_at(x, i, 2, v));
            f_st_f32(w + (i * 2 + v) * CBQ_LANES, n == 32 ? f_add(base, magnitude) : magnitude);
        }
    }
}

CBQ_FN void fit_groups(const cbq_encode_tile *t, cbq_min_format f, int weighted, cbq_min_fits *fits) {
    float x[32 * CBQ_PAIR] __attribute__((aligned(64))), w[32 * CBQ_PAIR] __attribute__((aligned(64)));
    float weights[CBQ_TILE_BLOCKS * 256] __attribute__((aligned(64))), sigma2[CBQ_LANES];
    cbq_min_fit fit;
    if (weighted) {
        f_st_f32(sigma2, f_div(f_mul(f_set1(f.sigma_factor), f_sums_of_squares(t->x, 256, 256)), f_set1(256)));
        for (int b = 0; b < CBQ_TILE_BLOCKS; b++) weights_of(t->x + 256 * b, t->importance[b], sigma2[b], 256, weights + 256 * b);
    }
    for (int g = 0; g < CBQ_TILE_BLOCKS * 256 / f.size; g += CBQ_PAIR) {
        groups_to_lanes(t->x + g * f.size, f.size, 2, x);
        if (weighted) {
            groups_to_lanes(weights + g * f.size, f.size, 2, w);
            sums_of_groups(w, f.size, 2, fits->weight + g);
        } else plain_weights(x, f.size, w);
        min_search(x, w, f.size, f.most, weighted ? f.weighted : f.plain, &fit);
        memcpy(fits->scale + g, fit.scale, sizeof fit.scale);
        for (int i = 0; i < CBQ_PAIR; i++) fits->min[g + i] = -fit.min[i];
        memcpy(fits->inverse + g, fit.inverse, sizeof fit.inverse);
        memcpy(fits->low + g, fit.low, sizeof fit.low);
    }
}

/* Integers of n scales from 0 up under their largest; with `wide` scales a byte that would be larger than that is cut. */
CBQ_FN uint16_t integers_under_largest(const float *scales, int n, int most, int wide, uint8_t *integers) {
    float largest = 0;
    for (int j = 0; j < n; j++) largest = scales[j] > largest ? scales[j] : largest;
    float inverse = largest > 0 ? (float)most / largest : 0;
    for (int j = 0; j < n; j++) {
        integers[j] = (uint8_t)cbq_nearest(inverse * scales[j]);
        if (wide && integers[j] > most) integers[j] = (uint8_t)most;
    }
    return cbq_f32_to_f16(largest > 0 ? largest / (float)most : 0);
}

/* The integers of every superblock of the tile. */
CBQ_FN void fit_scales(const cbq_min_fits *fits, cbq_min_format f, int weighted, cbq_min_scales scales[CBQ_TILE_BLOCKS]) {
    const int n = 256 / f.size;
    if (!weighted) {
        for (int b = 0; b < CBQ_TILE_BLOCKS; b++) {
            scales[b].d = integers_under_largest(fits->scale + n * b, n, f.most_scale, n == 8, scales[b].s);
            scales[b].dmin = integers_under_largest(fits->min + n * b, n, f.most_scale, n == 8, scales[b].m);
        }
        return;
    }
    float w[CBQ_MOST_GROUPS * CBQ_LANES], columns[CBQ_MOST_GROUPS * CBQ_LANES], d[CBQ_LANES], dmin[CBQ_LANES];
    int32_t s[CBQ_MOST_GROUPS * CBQ_LANES], m[CBQ_MOST_GROUPS * CBQ_LANES];
    columns_to_lanes(fits->weight, n, w);
    columns_to_lanes(fits->scale, n, columns);
    f_st_f32(d, positive_scales(columns, w, n, f.most_scale, s));
    columns_to_lanes(fits->min, n, columns);
    f_st_f32(dmin, positive_scales(columns, w, n, f.most_scale, m));
    for (int b = 0; b < CBQ_TILE_BLOCKS; b++) {
        scales[b].d = cbq_f32_to_f16(d[b]), scales[b].dmin = cbq_f32_to_f16(dmin[b]);
        for (int j = 0; j < n; j++) scales[b].s[j] = (uint8_t)s[j * CBQ_LANES + b], scales[b].m[j] = (uint8_t)m[j * CBQ_LANES + b];
    }
}

/* A group's codes under the stored scale d and minimum; where d is 0, those of the search stay. */
CBQ_FN void min_group_codes(const float *x, int n, float d, float min, float inverse, float low, int most, uint8_t *codes) {
    for (int i = 0; i < n; i += CBQ_LANES) {
        F v = f_ld(x + i);
        F ideal = d != 0 ? f_div(f_add(v, f_set1(min)), f_set1(d)) : f_mul(f_set1(inverse), f_sub(v, f_set1(low)));
        i_st_u8(codes + i, i_clamp(f_nearest(ideal), 0, most));
    }
}
/* Superblock b of the tile: s and m are the integers as a decoder reads them. */
CBQ_FN void min_codes(const cbq_encode_tile *t, int b, cbq_min_format f, const cbq_min_fits *fits, const cbq_min_scales *stored, const uint8_t *s,
                      const uint8_t *m, uint8_t codes[256]) {
    float d = cbq_f16_to_f32(stored->d), dmin = cbq_f16_to_f32(stored->dmin);
    for (int j = 0; j < 256 / f.size; j++) {
        int g = b * (256 / f.size) + j;
        min_group_codes(t->x + 256 * b + f.size * j, f.size, d * (float)s[j], dmin * (float)m[j], fits->inverse[g], fits->low[g], (int)f.most,
                        codes + f.size * j);
    }
}
