/* The search for a scale of either sign (ggml's make_qx_quants): codes -most .. most - 1, the element of largest magnitude
   near -most. Nineteen inverse scales; the codes of each give a scale by weighted least squares, and the fit that explains
   most of x is kept. Groups in lanes. */
#pragma once
#include "lanes_of_groups.h"

/* Codes are nearest(inverse * x), clamped; a group that counts as zero has NaN there and code -most. */
typedef struct { float scale[CBQ_PAIR], inverse[CBQ_PAIR]; } cbq_signed_fit;

CBQ_FN F signed_code(F inverse, F x, float most) {
    F rounded = f_sub(f_add(f_mul(inverse, x), f_set1(CBQ_ROUNDER)), f_set1(CBQ_ROUNDER)); /* |inverse * x| <= most + 0.9 */
    return f_max(f_min(rounded, f_set1(most - 1)), f_set1(-most));
}

/* x and w: n x vectors * CBQ_LANES floats, see lanes_of_groups.h. */
CBQ_FN void signed_search(const float *x, const float *w, int n, float most, int vectors, cbq_signed_fit *fit) {
    float weighted[32 * CBQ_PAIR] __attribute__((aligned(64)));
    F largest[2], magnitude[2], scale[2], best[2], inverse[2];
    M zero[2];
    CBQ_EACH_OF(v, vectors) largest[v] = magnitude[v] = scale[v] = best[v] = inverse[v] = f_zero();
    for (int i = 0; i < n; i++)
        CBQ_EACH_OF(v, vectors) {
            F xi = lanes_at(x, i, vectors, v);
            M more = m_lt(magnitude[v], f_abs(xi));
            magnitude[v] = f_select(more, f_abs(xi), magnitude[v]);
            largest[v] = f_select(more, xi, largest[v]);
            f_st_f32(weighted + (i * vectors + v) * CBQ_LANES, f_mul(lanes_at(w, i, vectors, v), xi));
        }
    CBQ_EACH_OF(v, vectors) zero[v] = m_lt(magnitude[v], f_set1(1e-15f));
    for (int step = -10; step <= 9; step++) { /* -10 stands for the plain one, which comes first */
        if (step == 0) continue;
        F candidate[2], xl[2], l2[2];
        float size = step == -10 ? -most : -(most + 0.1f * (float)step);
        CBQ_EACH_OF(v, vectors) {
            candidate[v] = f_div(f_set1(size), largest[v]);
            xl[v] = l2[v] = f_zero();
        }
        for (int i = 0; i < n; i++)
            CBQ_EACH_OF(v, vectors) {
                F code = signed_code(candidate[v], lanes_at(x, i, vectors, v), most);
                xl[v] = f_add(xl[v], f_mul(lanes_at(weighted, i, vectors, v), code));
                l2[v] = f_add(l2[v], f_mul(f_mul(lanes_at(w, i, vectors, v), code), code));
            }
        CBQ_EACH_OF(v, vectors) {
            F its_scale = f_div(xl[v], l2[v]);
            M better = m_and(m_lt(f_zero(), l2[v]), m_lt(f_mul(best[v], l2[v]), f_mul(xl[v], xl[v])));
            if (step == -10) {
                its_scale = f_where(m_ne(l2[v], f_zero()), its_scale);
                better = m_eq(f_zero(), f_zero());
            }
            scale[v] = f_select(better, its_scale, scale[v]);
            best[v] = f_select(better, f_mul(its_scale, xl[v]), best[v]);
            inverse[v] = f_select(better, candidate[v], inverse[v]);
        }
    }
    CBQ_EACH_OF(v, vectors) {
        f_st_f32(fit->scale + v * CBQ_LANES, f_select(zero[v], f_zero(), scale[v]));
        f_st_f32(fit->inverse + v * CBQ_LANES, f_select(zero[v], f_set1(__builtin_nanf("")), inverse[v]));
    }
}

/* Codes 0 .. 2 most - 1 of a group under the stored scale d; where d is 0, those of the search stay. */
CBQ_FN void signed_group_codes(const float *x, int n, float d, float inverse, int most, uint8_t *codes) {
    for (int i = 0; i < n; i += CBQ_LANES) {
        F v = f_ld(x + i);
        I code = i_set1(-most);
        if (d != 0) code = f_nearest(f_div(v, f_set1(d)));
        else if (inverse == inverse) code = f_nearest(f_mul(f_set1(inverse), v));
        i_st_u8(codes + i, i_add(i_clamp(code, -most, most - 1), i_set1(most)));
    }
}
