/* Formats with a d (and a dmin) in f16, and perhaps a small integer for each group that it is multiplied with. From two
   places, the reference's and the groups' own fits, d and the integers are improved by turns; codes always are the nearest. */
#include "improver.h"

enum { ROUNDS = 4, TRIES = 32 };
enum { POLISH_ONE = 4, POLISH_STEPS = 2, POLISH_MINIMUM = 1 }; /* how many bits up and down */

/* d, dmin and the integers; sums and errors of the groups under them. */
typedef struct {
    double d, dmin, error;
    int s[16], m[16];
    double errors[16];
    cbq_sums sums[16];
} state;

CBQ_FN int limited(int x, int low, int high) { return x < low ? low : x > high ? high : x; }
CBQ_FN int nearest(double x, int low, int high) {
    if (!(x > low)) return low;
    return x >= high ? high : (int)(x - low + 0.5) + low;
}
CBQ_FN int factor_of(const cbq_improver *f, int s) { return f->has_steps ? f->s_step * s + f->s_plus : 1; }
CBQ_FN double scale_of(const cbq_work *work, const state *t, int g) { return t->d * factor_of(work->f, t->s[g]); }
CBQ_FN double minimum_of(const cbq_work *work, const state *t, int g) { return t->dmin * (t->m[g] + work->f->m_plus); }

/* The integer whose scale is nearest to this one; for minimums likewise. */
CBQ_FN int step_for(const cbq_improver *f, double scale, double d) {
    if (!f->has_steps || d == 0) return f->s_low;
    return nearest((scale / d - f->s_plus) / f->s_step, f->s_low, f->s_high);
}
CBQ_FN int minimum_step_for(const cbq_improver *f, double minimum, double dmin) {
    return f->m_high == 0 || dmin == 0 ? 0 : nearest(minimum / dmin, 0, f->m_high);
}

/* ---- d as it can be stored: unit times a finite f16 ---- */

static uint32_t bits_of(double d, double unit) {
    double h = d / unit;
    h = h < -65504 ? -65504 : h > 65504 ? 65504 : h;
    return cbq_f32_to_f16((float)h);
}
static double storable(double d, double unit) { return unit * (double)cbq_f16_to_f32(bits_of(d, unit)); }
/* Some bits further from zero, or nearer to it. */
static double neighbour(double d, double unit, int by) {
    const uint32_t bits = bits_of(d, unit);
    const int size = (int)(bits & 0x7fff) + by;
    return size < 0 || size > 0x7bff ? d : unit * (double)cbq_f16_to_f32((bits & 0x8000) | (uint32_t)size);
}

/* ---- the error of a state ---- */

static void look_at_group(const cbq_work *work, state *t, int g) {
    const double scale = scale_of(work, t, g), minimum = minimum_of(work, t, g);
    t->sums[g] = cbq_nearest_sums(work, g, scale, minimum);
    t->errors[g] = cbq_error(&work->moments[g], &t->sums[g], scale, minimum);
}
static void add_up(const cbq_work *work, state *t) {
    t->error = 0;
    for (int g = 0; g < work->groups; g++) t->error += t->errors[g];
}
static void look_at(const cbq_work *work, state *t) {
    for (int g = 0; g < work->groups; g++) look_at_group(work, t, g);
    add_up(work, t);
}
static int keep_if_better(const state *t, state *best) {
    if (!cbq_is_better(t->error, best->error)) return 0;
    *best = *t;
    return 1;
}

/* ---- integers of a group under d and dmin ---- */

static void try_integers(const cbq_work *work, state *t, int g, int s, int m) {
    const double was = t->errors[g];
    const int old_s = t->s[g], old_m = t->m[g];
    const cbq_sums sums = t->sums[g];
    s = limited(s, work->f->s_low, work->f->s_high), m = limited(m, 0, work->f->m_high);
    if (s == old_s && m == old_m) return;
    t->s[g] = s, t->m[g] = m;
    look_at_group(work, t, g);
    if (cbq_is_better(t->errors[g], was)) return;
    t->s[g] = old_s, t->m[g] = old_m, t->errors[g] = was, t->sums[g] = sums;
}

/* The minimum that fits the group's codes under another scale. */
static int minimum_step_at(const cbq_work *work, const state *t, int g, double scale) {
    const cbq_moments *x = &work->moments[g];
    return minimum_step_for(work->f, (scale * t->sums[g].v - x->x) * x->inverse, t->dmin);
}

static void improve_integers(const cbq_work *work, state *t, int g) {
    const cbq_improver *f = work->f;
    double scale = scale_of(work, t, g), minimum = minimum_of(work, t, g);
    cbq_least_squares(work, g, &t->sums[g], &scale, &minimum);
    try_integers(work, t, g, step_for(f, scale, t->d), minimum_step_for(f, minimum, t->dmin));
    if (f->codes == CBQ_CODES_KEPT) return; /* the error is a parabola: that was its lowest point */
    for (int by = -1; by <= 1; by += 2) {
        const int s = t->s[g] + by;
        try_integers(work, t, g, s, minimum_step_at(work, t, g, t->d * factor_of(f, s)));
        if (f->m_high) try_integers(work, t, g, t->s[g], t->m[g] + by);
    }
}

/* ---- d and dmin under the integers and codes: least squares over the block ---- */

static void refit(const cbq_work *work, state *t) {
    const cbq_improver *f = work->f;
    double ss = 0, sm = 0, mm = 0, sx = 0, mx = 0; /* of the columns s v and -m, and x */
    for (int g = 0; g < work->groups; g++) {
        const double s = factor_of(f, t->s[g]), m = t->m[g] + f->m_plus;
        const cbq_sums *v = &t->sums[g];
        ss += s * s * v->vv, sm -= s * m * v->v, mm += m * m * work->moments[g].w;
        sx += s * v->xv, mx -= m * work->moments[g].x;
    }
    const double determinant = ss * mm - sm * sm;
    double d = t->d, dmin = t->dmin;
    if (work->f->decoder->min && determinant > 1e-9 * ss * mm) d = (sx * mm - mx * sm) / determinant, dmin = (mx * ss - sx * sm) / determinant;
    else if (ss > 0) d = (sx - sm * dmin) / ss;
    t->d = storable(d, f->unit);
    if (work->f->decoder->min) t->dmin = storable(dmin, f->min_unit);
}

/* By turns, until neither helps. */
static void refine(const cbq_work *work, state *best) {
    for (int round = 0; round < ROUNDS; round++) {
        const double before = best->error;
        if (work->f->has_steps) {
            for (int g = 0; g < work->groups; g++) improve_integers(work, best, g);
            add_up(work, best);
        }
        state t = *best;
        refit(work, &t);
        if (t.d != best->d || t.dmin != best->dmin) look_at(work, &t);
        if (!keep_if_better(&t, best) && !cbq_is_better(best->error, before)) break;
    }
}

/* Neighbours in bits: codes jump where the scale crosses a half, so least squares is not the last word. */
static void polish(const cbq_work *work, state *best) {
    const int reach = work->f->has_steps ? POLISH_STEPS : POLISH_ONE;
    const double d = best->d, dmin = best->dmin;
    for (int by = -reach; by <= reach; by++) {
        state t = *best;
        t.d = neighbour(d, work->f->unit, by);
        look_at(work, &t);
        keep_if_better(&t, best);
    }
    for (int by = -POLISH_MINIMUM; by <= POLISH_MINIMUM && work->f->decoder->min; by++) {
        state t = *best;
        t.dmin = neighbour(dmin, work->f->min_unit, by);
        look_at(work, &t);
        keep_if_better(&t, best);
    }
}

/* ---- a beginning from the groups' own fits ---- */

/* What it costs to have d times integers in place of the fits' scales: each group's error is about a parabola. */
static double cost_of_d(const cbq_work *work, const cbq_fit *fits, double d, int *s) {
    double cost = 0;
    for (int g = 0; g < work->groups; g++) {
        const cbq_sums *v = &fits[g].sums;
        s[g] = step_for(work->f, fits[g].scale, d);
        const double off = d * factor_of(work->f, s[g]) - fits[g].scale;
        const double of_minimum = work->f->decoder->min ? v->v * v->v * work->moments[g].inverse : 0;
        cost += (v->vv - of_minimum) * off * off;
    }
    return cost;
}
/* The same for minimums, each of which should follow what its scale has become. */
static double cost_of_dmin(const cbq_work *work, const cbq_fit *fits, const state *t, double dmin, int *m) {
    double cost = 0;
    for (int g = 0; g < work->groups; g++) {
        const cbq_moments *x = &work->moments[g];
        const double minimum = fits[g].minimum + (scale_of(work, t, g) - fits[g].scale) * fits[g].sums.v * x->inverse;
        m[g] = minimum_step_for(work->f, minimum, dmin);
        const double off = dmin * (m[g] + work->f->m_plus) - minimum;
        cost += x->w * off * off;
    }
    return cost;
}

static void choose_d(const cbq_work *work, const cbq_fit *fits, state *t) {
    const cbq_improver *f = work->f;
    double largest = 0, best = __builtin_inf();
    for (int g = 0; g < work->groups; g++)
        if (__builtin_fabs(fits[g].scale) > __builtin_fabs(largest)) largest = fits[g].scale;
    const int tries = f->has_steps ? TRIES : 1;
    for (int end = 0; end < 2; end++) {
        const int factor = factor_of(f, end ? f->s_low : f->s_high);
        if (end && (!f->has_steps || factor >= 0)) break;
        for (int i = 0; i < tries; i++) {
            int s[16] = {0};
            const double d = storable(largest / (factor * (1 - 0.5 * i / tries)), f->unit), cost = cost_of_d(work, fits, d, s);
            if (!(cost < best)) continue;
            best = cost, t->d = d;
            memcpy(t->s, s, sizeof s);
        }
    }
}
static void choose_dmin(const cbq_work *work, const cbq_fit *fits, state *t) {
    const cbq_improver *f = work->f;
    double most = 0, least = 0, best = __builtin_inf();
    for (int g = 0; g < work->groups; g++) {
        most = fits[g].minimum > most ? fits[g].minimum : most;
        least = fits[g].minimum < least ? fits[g].minimum : least;
    }
    for (int end = 0; end < 2; end++)
        for (int i = 0; i < (f->m_high ? TRIES : 1); i++) {
            int m[16] = {0};
            const double top = f->m_high ? f->m_high * (1 - 0.5 * i / TRIES) : 1;
            const double dmin = storable((end ? least : most) / top, f->min_unit), cost = cost_of_dmin(work, fits, t, dmin, m);
            if (!(cost < best)) continue;
            best = cost, t->dmin = dmin;
            memcpy(t->m, m, sizeof m);
        }
}

void cbq_improve_scales(const cbq_work *work, cbq_scales *scales) {
    state best = {.d = scales->d, .dmin = scales->dmin}, other = {.d = 0, .dmin = 0};
    cbq_fit fits[16];
    memcpy(best.s, scales->s, sizeof best.s);
    memcpy(best.m, scales->m, sizeof best.m);
    for (int g = 0; g < work->groups; g++) {
        fits[g].scale = scales->scale[g], fits[g].minimum = scales->minimum[g];
        cbq_fit_group(work, g, &fits[g]);
    }
    choose_d(work, fits, &other);
    if (work->f->decoder->min) choose_dmin(work, fits, &other);
    look_at(work, &other);
    refine(work, &other);
    look_at(work, &best);
    refine(work, &best);
    keep_if_better(&other, &best);
    polish(work, &best);
    scales->d = best.d, scales->dmin = best.dmin;
    memcpy(scales->s, best.s, sizeof best.s);
    memcpy(scales->m, best.m, sizeof best.m);
    for (int g = 0; g < work->groups; g++) scales->scale[g] = scale_of(work, &best, g), scales->minimum[g] = minimum_of(work, &best, g);
}
