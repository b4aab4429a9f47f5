/* A group's own scale and minimum. The error has many local minima; from a few places that cover where the best one lies, the
   codes are taken, and the scale that fits these; the best of them is refined by turns. */
#include "improver.h"

enum { REFINEMENTS = 4 };

/* Keeps what fits the codes that are nearest under scale and minimum, if it is better. */
static int try_from(const cbq_work *work, int g, double scale, double minimum, cbq_fit *best) {
    cbq_fit fit = {.scale = scale, .minimum = minimum, .sums = cbq_nearest_sums(work, g, scale, minimum)};
    cbq_least_squares(work, g, &fit.sums, &fit.scale, &fit.minimum);
    fit.error = cbq_error(&work->moments[g], &fit.sums, fit.scale, fit.minimum);
    if (work->f->decoder->min && !(fit.scale > 0)) return 0;
    if (!cbq_is_better(fit.error, best->error)) return 0;
    *best = fit;
    return 1;
}

/* The smallest and the largest of the numbers that count. */
static int range_of(const cbq_work *work, int g, double *low, double *high) {
    int found = 0;
    for (int i = g * work->group; i < (g + 1) * work->group; i++) {
        if (!(work->w[i] > 0)) continue;
        if (!found || work->x[i] < *low) *low = work->x[i];
        if (!found || work->x[i] > *high) *high = work->x[i];
        found = 1;
    }
    return found;
}

static double larger(double a, double b) { return a > b ? a : b; }

/* From the scale under which nothing is cut off to one that cuts off some steps; a step is that of the codes, in the middle.
   Both signs, where the codes reach further on one side. */
static void try_scales(const cbq_work *work, int g, double low, double high, cbq_fit *best) {
    const double steps = work->f->codes == CBQ_CODES_BOOK ? 15 : work->high - work->low;
    for (int sign = 1; sign >= -1; sign -= 2) {
        const double whole = sign > 0 ? larger(high / work->high, low / work->low) : -larger(-low / work->high, -high / work->low);
        if (whole == 0 || (sign < 0 && work->low == -work->high)) continue;
        for (double cut = -0.5; cut <= 2.5; cut += 0.5) try_from(work, g, whole * steps / (steps + 2 * cut), 0, best);
    }
}
/* The same with both ends, each for itself. */
static void try_ranges(const cbq_work *work, int g, double low, double high, cbq_fit *best) {
    static const double cuts[] = {-0.4, -0.1, 0.2, 0.5, 0.8};
    const double steps = work->high - work->low, step = (high - low) / steps;
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 5; j++) {
            const double from = low + cuts[i] * step, to = high - cuts[j] * step;
            if (to > from) try_from(work, g, (to - from) / steps, work->low * (to - from) / steps - from, best);
        }
}

void cbq_fit_group(const cbq_work *work, int g, cbq_fit *fit) {
    double low = 0, high = 0;
    fit->error = __builtin_inf();
    fit->sums = (cbq_sums){0, 0, 0};
    try_from(work, g, fit->scale, fit->minimum, fit);
    if (work->f->codes == CBQ_CODES_KEPT || !range_of(work, g, &low, &high)) return;
    if (work->f->decoder->min) try_ranges(work, g, low, high, fit);
    else try_scales(work, g, low, high, fit);
    for (int i = 0; i < REFINEMENTS; i++)
        if (!try_from(work, g, fit->scale, fit->minimum, fit)) break;
}
