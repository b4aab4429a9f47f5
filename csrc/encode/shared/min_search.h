/* The search for a scale and a minimum (ggml's make_qkx2_quants and make_qkx3_quants): codes 0 .. most stand for
   scale * code + min, min <= 0. A candidate is a slightly larger or smaller inverse scale; its codes give a scale and a
   minimum by weighted least squares, which are kept where they beat the best so far. A minimum that was kept is what later
   candidates start from, so candidates cannot go in lanes: groups do. */
#pragma once
#include "lanes_of_groups.h"

/* Codes are nearest(inverse * (x - low)), clamped. */
typedef struct { float scale[CBQ_PAIR], min[CBQ_PAIR], inverse[CBQ_PAIR], low[CBQ_PAIR]; } cbq_min_fit;
typedef struct { float first, step; int steps; int magnitudes; } cbq_min_plan; /* magnitudes: errors are not squared */

CBQ_FN F min_error(F scale, F code, F min, F x, int magnitudes) {
    F d = f_sub(f_add(f_mul(scale, code), min), x);
    return magnitudes ? f_abs(d) : f_mul(d, d);
}
/* Rounded and clamped as floats where the product is far from 2^22; beyond, see f_nearest. */
CBQ_FN F min_code(F inverse, F x, F low, float most, int far) {
    F v = f_mul(inverse, f_sub(x, low));
    if (far) return i_to_f(i_clamp(f_nearest(v), 0, (int)most));
    F rounded = f_sub(f_add(v, f_set1(CBQ_ROUNDER)), f_set1(CBQ_ROUNDER));
    return f_max(f_min(rounded, f_set1(most)), f_zero());
}

typedef struct { F least, low, high, weights, weighted; M flat; } cbq_min_range;

CBQ_FN cbq_min_range min_range(const float *x, const float *w, int n, int v) {
    F x0 = lanes_at(x, 0, 2, v), w0 = lanes_at(w, 0, 2, v);
    cbq_min_range r = {.least = x0, .high = x0, .weights = w0, .weighted = f_mul(w0, x0)};
    for (int i = 1; i < n; i++) {
        F xi = lanes_at(x, i, 2, v), wi = lanes_at(w, i, 2, v);
        r.least = f_min(xi, r.least);
        r.high = f_max(xi, r.high);
        r.weights = f_add(r.weights, wi);
        r.weighted = f_add(r.weighted, f_mul(wi, xi));
    }
    r.low = f_select(m_lt(f_zero(), r.least), f_zero(), r.least);
    r.flat = m_le(r.high, r.low);
    return r;
}

/* Sums of the codes of one candidate, and the codes themselves. */
typedef struct { F l, l2, xl; } cbq_code_sums;
CBQ_FN void min_sums(const float *x, const float *w, int n, const F inverse[2], const F low[2], float most, int far, float *codes,
                     cbq_code_sums s[2]) {
    CBQ_EACH_OF(v, 2) s[v] = (cbq_code_sums){f_zero(), f_zero(), f_zero()};
    for (int i = 0; i < n; i++)
        CBQ_EACH_OF(v, 2) {
            F xi = lanes_at(x, i, 2, v), code = min_code(inverse[v], xi, low[v], most, far);
            f_st_f32(codes + (i * 2 + v) * CBQ_LANES, code);
            F wl = f_mul(lanes_at(w, i, 2, v), code);
            s[v].l = f_add(s[v].l, wl);
            s[v].l2 = f_add(s[v].l2, f_mul(wl, code));
            s[v].xl = f_add(s[v].xl, f_mul(wl, xi));
        }
}

/* Flat groups: all codes 0. */
CBQ_FN void store_flat(const cbq_min_range r[2], cbq_min_fit *fit) {
    CBQ_EACH_OF(v, 2) {
        f_st_f32(fit->scale + v * CBQ_LANES, f_zero());
        f_st_f32(fit->min + v * CBQ_LANES, r[v].low);
        f_st_f32(fit->inverse + v * CBQ_LANES, f_zero());
        f_st_f32(fit->low + v * CBQ_LANES, r[v].low);
    }
}

/* x and w: n x CBQ_PAIR, see lanes_of_groups.h. */
CBQ_FN void min_search(const float *x, const float *w, int n, float most, cbq_min_plan plan, cbq_min_fit *fit) {
    float codes[32 * CBQ_PAIR] __attribute__((aligned(64)));
    cbq_min_range r[2];
    F scale[2], min[2], low[2], inverse[2], best[2];
    CBQ_EACH_OF(v, 2) r[v] = min_range(x, w, n, v);
    if (m_all(m_and(r[0].flat, r[1].flat))) {
        store_flat(r, fit);
        return;
    }
    CBQ_EACH_OF(v, 2) {
        min[v] = low[v] = r[v].low;
        inverse[v] = f_div(f_set1(most), f_sub(r[v].high, min[v]));
        scale[v] = f_div(f_set1(1), inverse[v]);
        best[v] = f_zero();
    }
    for (int i = 0; i < n; i++)
        CBQ_EACH_OF(v, 2) {
            F xi = lanes_at(x, i, 2, v), code = min_code(inverse[v], xi, min[v], most, 1);
            best[v] = f_add(best[v], f_mul(lanes_at(w, i, 2, v), min_error(scale[v], code, min[v], xi, plan.magnitudes)));
        }
    for (int step = 0; step <= plan.steps; step++) {
        F candidate[2], error[2], its_scale[2], its_min[2];
        M usable[2];
        cbq_code_sums s[2];
        int far = 0;
        CBQ_EACH_OF(v, 2) {
            candidate[v] = f_div(f_set1(plan.first + plan.step * (float)step + most), f_sub(r[v].high, min[v]));
            F least = f_abs(f_mul(candidate[v], f_sub(r[v].least, min[v]))), largest = f_abs(f_mul(candidate[v], f_sub(r[v].high, min[v])));
            far |= m_any(m_andnot(m_not_lt(f_max(least, largest), f_set1(4e6f)), r[v].flat));
        }
        if (__builtin_expect(far, 0)) min_sums(x, w, n, candidate, min, most, 1, codes, s);
        else min_sums(x, w, n, candidate, min, most, 0, codes, s);
        CBQ_EACH_OF(v, 2) {
            F D = f_sub(f_mul(r[v].weights, s[v].l2), f_mul(s[v].l, s[v].l));
            usable[v] = m_lt(f_zero(), D);
            its_scale[v] = f_div(f_sub(f_mul(r[v].weights, s[v].xl), f_mul(r[v].weighted, s[v].l)), D);
            its_min[v] = f_div(f_sub(f_mul(s[v].l2, r[v].weighted), f_mul(s[v].l, s[v].xl)), D);
            M above = m_lt(f_zero(), its_min[v]);
            its_min[v] = f_select(above, f_zero(), its_min[v]);
            its_scale[v] = f_select(above, f_div(s[v].xl, s[v].l2), its_scale[v]);
            error[v] = f_zero();
        }
        if (!m_any(m_or(usable[0], usable[1]))) continue; /* one code in each group: rows that are constant */
        for (int i = 0; i < n; i++)
            CBQ_EACH_OF(v, 2) {
                F e = min_error(its_scale[v], lanes_at(codes, i, 2, v), its_min[v], lanes_at(x, i, 2, v), plan.magnitudes);
                error[v] = f_add(error[v], f_mul(lanes_at(w, i, 2, v), e));
            }
        CBQ_EACH_OF(v, 2) {
            M better = m_and(usable[v], m_lt(error[v], best[v]));
            best[v] = f_select(better, error[v], best[v]);
            scale[v] = f_select(better, its_scale[v], scale[v]);
            inverse[v] = f_select(better, candidate[v], inverse[v]);
            low[v] = f_select(better, min[v], low[v]);
            min[v] = f_select(better, its_min[v], min[v]);
        }
    }
    CBQ_EACH_OF(v, 2) { /* a flat group: all codes 0 */
        f_st_f32(fit->scale + v * CBQ_LANES, f_select(r[v].flat, f_zero(), scale[v]));
        f_st_f32(fit->min + v * CBQ_LANES, f_select(r[v].flat, r[v].low, min[v]));
        f_st_f32(fit->inverse + v * CBQ_LANES, f_select(r[v].flat, f_zero(), inverse[v]));
        f_st_f32(fit->low + v * CBQ_LANES, low[v]);
    }
}
