/* Formats whose groups have a byte for a scale, and no more. */
#include "improver.h"

static double try_byte(const cbq_work *work, int g, const double *byte_scales, int byte, cbq_scales *scales, double best) {
    const double scale = byte_scales[byte];
    const cbq_sums sums = cbq_nearest_sums(work, g, scale, 0);
    const double error = cbq_error(&work->moments[g], &sums, scale, 0);
    if (!cbq_is_better(error, best)) return best;
    scales->s[g] = byte;
    scales->scale[g] = scale;
    return error;
}

/* Of the numbers that count. */
static double largest_of(const cbq_work *work, int g, double *weight) {
    double largest = 0;
    for (int i = g * work->group; i < (g + 1) * work->group; i++) {
        const double x = __builtin_fabs(work->x[i]);
        if (work->w[i] > 0 && x > largest) largest = x, *weight = work->w[i];
    }
    return largest;
}

/* Twice a scale that cuts nothing off is no use: as far as the numbers reach, E2M1's values times two are all values of E2M1.
   Going down from there, what is cut off from the largest number grows until it alone is more than the best error. */
static void improve_group(const cbq_work *work, int g, const double *byte_scales, int n_bytes, cbq_scales *scales) {
    const double high = work->book->high;
    double weight = 0, best = try_byte(work, g, byte_scales, scales->s[g], scales, __builtin_inf());
    const double largest = largest_of(work, g, &weight);
    int byte = 0;
    while (byte + 1 < n_bytes && byte_scales[byte] * high < 2 * largest) byte++;
    for (; byte >= 0; byte--) {
        const double off = largest - byte_scales[byte] * high;
        if (off > 0 && weight * off * off > best) break;
        best = try_byte(work, g, byte_scales, byte, scales, best);
    }
}

/* byte_scales: n_bytes scales, increasing. */
void cbq_improve_bytes(const cbq_work *work, const double *byte_scales, int n_bytes, cbq_scales *scales) {
    for (int g = 0; g < work->groups; g++) improve_group(work, g, byte_scales, n_bytes, scales);
}
