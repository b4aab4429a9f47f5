/* q3_k without an importance matrix (ggml's make_q3_quants): codes -4 .. 3 of 16 elements weighted by x^2, of which one at a time
   is moved to where the fit is better, for up to five rounds or until none moves. */
#pragma once
#include "lanes_of_groups.h"

enum { CBQ_REFINED_GROUPS = CBQ_LANES * 16 }; /* of a tile */

/* Of all groups of a tile: their codes, the two sums of their fit, and whether they count as zero. */
typedef struct {
    float code[CBQ_REFINED_GROUPS][16], xl[CBQ_REFINED_GROUPS], l2[CBQ_REFINED_GROUPS];
    uint8_t zero[CBQ_REFINED_GROUPS];
} cbq_refined;

typedef struct {
    F code[16][2], xl[2], l2[2];
    M zero[2];
} cbq_refining;

/* One round over the groups in lanes; the lanes in which a code moved. */
CBQ_FN uint32_t refine_once(const float *x, cbq_refining *r) {
    uint32_t changed = 0;
    for (int i = 0; i < 16; i++)
        CBQ_EACH_OF(v, 2) {
            F xi = lanes_at(x, i, 2, v), w = f_mul(xi, xi), wx = f_mul(w, xi), old = r->code[i][v];
            F rest_xl = f_sub(r->xl[v], f_mul(wx, old)), rest_l2 = f_sub(r->l2[v], f_mul(f_mul(w, old), old));
            F code = i_to_f(i_clamp(f_nearest(f_div(f_mul(xi, rest_l2), rest_xl)), -4, 3));
            M can = m_and(m_andnot(m_lt(f_zero(), rest_xl), r->zero[v]), m_ne(code, old));
            if (!m_any(can)) continue;
            F xl = f_add(rest_xl, f_mul(wx, code)), l2 = f_add(rest_l2, f_mul(f_mul(w, code), code));
            M better = m_and(m_lt(f_zero(), l2), m_lt(f_mul(f_mul(r->xl[v], r->xl[v]), l2), f_mul(f_mul(xl, xl), r->l2[v])));
            M moves = m_and(can, better);
            r->code[i][v] = f_select(moves, code, old);
            r->xl[v] = f_select(moves, xl, r->xl[v]);
            r->l2[v] = f_select(moves, l2, r->l2[v]);
            changed |= m_bits(moves) << v * CBQ_LANES;
        }
    return changed;
}

CBQ_FN void begin_refining(const float *x, cbq_refining *r) {
    F largest[2], magnitude[2];
    CBQ_EACH_OF(v, 2) largest[v] = magnitude[v] = r->xl[v] = r->l2[v] = f_zero();
    for (int i = 0; i < 16; i++)
        CBQ_EACH_OF(v, 2) {
            F xi = lanes_at(x, i, 2, v);
            M more = m_lt(magnitude[v], f_abs(xi));
            magnitude[v] = f_select(more, f_abs(xi), magnitude[v]);
            largest[v] = f_select(more, xi, largest[v]);
        }
    CBQ_EACH_OF(v, 2) {
        F inverse = f_div(f_set1(-4), largest[v]);
        r->zero[v] = m_lt(magnitude[v], f_set1(1e-15f));
        for (int i = 0; i < 16; i++) {
            F xi = lanes_at(x, i, 2, v), w = f_mul(xi, xi);
            F rounded = f_sub(f_add(f_mul(inverse, xi), f_set1(CBQ_ROUNDER)), f_set1(CBQ_ROUNDER));
            F code = r->code[i][v] = f_max(f_min(rounded, f_set1(3)), f_set1(-4));
            r->xl[v] = f_add(r->xl[v], f_mul(f_mul(w, xi), code));
            r->l2[v] = f_add(r->l2[v], f_mul(f_mul(w, code), code));
        }
    }
}

CBQ_FN void codes_to_groups(const cbq_refining *r, float *groups) {
    float codes[16 * CBQ_PAIR];
    for (int i = 0; i < 16; i++)
        CBQ_EACH_OF(v, 2) f_st_f32(codes + (2 * i + v) * CBQ_LANES, r->code[i][v]);
    lanes_to_groups(codes, 16, groups);
}

/* Groups `ids` of the tile, one to a lane; what is beyond n repeats the first. */
CBQ_FN void gather_unfinished(const float *tile, cbq_refined *all, const int16_t *ids, int n, float *x, cbq_refining *r) {
    float rows[CBQ_PAIR * 16], own[CBQ_PAIR * 16], codes[16 * CBQ_PAIR], xl[CBQ_PAIR], l2[CBQ_PAIR];
    for (int lane = 0; lane < CBQ_PAIR; lane++) {
        int id = ids[lane < n ? lane : 0];
        memcpy(rows + 16 * lane, tile + 16 * id, 64);
        memcpy(own + 16 * lane, all->code[id], 64);
        xl[lane] = all->xl[id], l2[lane] = all->l2[id];
    }
    groups_to_lanes(rows, 16, 2, x);
    groups_to_lanes(own, 16, 2, codes);
    CBQ_EACH_OF(v, 2) {
        r->xl[v] = f_ld(xl + v * CBQ_LANES), r->l2[v] = f_ld(l2 + v * CBQ_LANES);
        r->zero[v] = m_of_bits(0); /* such groups never change, so they are never here */
        for (int i = 0; i < 16; i++) r->code[i][v] = lanes_at(codes, i, 2, v);
    }
}
CBQ_FN void scatter_unfinished(const cbq_refining *r, const int16_t *ids, int n, cbq_refined *all) {
    float xl[CBQ_PAIR], l2[CBQ_PAIR], own[CBQ_PAIR * 16];
    codes_to_groups(r, own);
    CBQ_EACH_OF(v, 2) f_st_f32(xl + v * CBQ_LANES, r->xl[v]), f_st_f32(l2 + v * CBQ_LANES, r->l2[v]);
    for (int lane = 0; lane < n; lane++) {
        all->xl[ids[lane]] = xl[lane], all->l2[ids[lane]] = l2[lane];
        memcpy(all->code[ids[lane]], own + 16 * lane, 64);
    }
}
/* Groups g .. g + CBQ_PAIR - 1. */
CBQ_FN void store_groups(const cbq_refining *r, int g, cbq_refined *all) {
    codes_to_groups(r, all->code[g]);
    CBQ_EACH_OF(v, 2) {
        f_st_f32(all->xl + g + v * CBQ_LANES, r->xl[v]);
        f_st_f32(all->l2 + g + v * CBQ_LANES, r->l2[v]);
        for (int i = 0; i < CBQ_LANES; i++) all->zero[g + v * CBQ_LANES + i] = m_bits(r->zero[v]) >> i & 1;
    }
}

/* Most groups are done after one round: the others are put side by side again. */
CBQ_FN void refine_tile(const float *tile, cbq_refined *all) {
    float x[16 * CBQ_PAIR] __attribute__((aligned(64)));
    int16_t ids[CBQ_REFINED_GROUPS + CBQ_PAIR];
    cbq_refining r;
    int left = 0;
    for (int g = 0; g < CBQ_REFINED_GROUPS; g += CBQ_PAIR) {
        groups_to_lanes(tile + 16 * g, 16, 2, x);
        begin_refining(x, &r);
        uint32_t changed = refine_once(x, &r);
        store_groups(&r, g, all);
        for (; changed; changed &= changed - 1) ids[left++] = (int16_t)(g + __builtin_ctz(changed));
    }
    for (int round = 1; round < 5 && left; round++) {
        int kept = 0;
        for (int at = 0; at < left; at += CBQ_PAIR) {
            const int n = left - at < CBQ_PAIR ? left - at : CBQ_PAIR;
            int16_t own[CBQ_PAIR];
            memcpy(own, ids + at, sizeof own);
            gather_unfinished(tile, all, own, n, x, &r);
            uint32_t changed = refine_once(x, &r);
            scatter_unfinished(&r, own, n, all);
            for (; changed; changed &= changed - 1)
                if (__builtin_ctz(changed) < n) ids[kept++] = own[__builtin_ctz(changed)];
        }
        left = kept;
    }
}
