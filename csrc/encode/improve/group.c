/* One group under a given scale and minimum: the nearest codes, their sums, its error. These loops are where the time goes:
   the first is vectors to any compiler, and the second adds up four sums side by side, in an order that depends on none. */
#include "improver.h"

#define ROUND 0x1.8p52 /* added and taken away again, it rounds to the nearest integer */

/* A scale of zero decodes to zeros: then any codes will do. */
CBQ_FN double inverse_of(double scale) { return scale != 0 ? 1 / scale : 0; }

CBQ_FN double nearest_integer(double t, double low, double high) {
    t = t < low ? low : t;
    t = t > high ? high : t;
    return (t + ROUND) - ROUND;
}
CBQ_FN uint8_t nearest_of_book(const cbq_book *book, double t) {
    t = t < book->low ? book->low : t;
    t = t > book->high ? book->high : t;
    return book->code[(int)((t - book->low) * CBQ_CELLS_PER_UNIT)];
}

/* What the nearest codes stand for. */
static void nearest_values(const cbq_work *work, const double *x, double inverse, double minimum, double *v) {
    const double low = work->low, high = work->high;
    const cbq_book *book = work->book;
    const int n = work->group;
    if (work->f->codes == CBQ_CODES_BOOK)
        for (int i = 0; i < n; i++) v[i] = book->value[nearest_of_book(book, x[i] * inverse)];
    else
        for (int i = 0; i < n; i++) v[i] = nearest_integer((x[i] + minimum) * inverse, low, high);
}

typedef double pair __attribute__((vector_size(16)));
CBQ_FN pair load(const double *p) { pair v; memcpy(&v, p, 16); return v; }
CBQ_FN double total(const pair a[2]) { return (a[0][0] + a[0][1]) + (a[1][0] + a[1][1]); }

cbq_sums cbq_sums_of(const double *x, const double *w, const double *v, int n) {
    pair v1[2] = {0}, vv[2] = {0}, xv[2] = {0};
    for (int i = 0; i < n; i += 4)
        CBQ_UNROLL_ALL
        for (int half = 0; half < 2; half++) {
            const int at = i + 2 * half;
            const pair value = load(v + at), wv = load(w + at) * value;
            v1[half] += wv;
            vv[half] += wv * value;
            xv[half] += wv * load(x + at);
        }
    return (cbq_sums){total(v1), total(vv), total(xv)};
}

cbq_sums cbq_nearest_sums(const cbq_work *work, int g, double scale, double minimum) {
    double v[256];
    const double *x = work->x + g * work->group, *w = work->w + g * work->group;
    if (work->f->codes == CBQ_CODES_KEPT) return work->kept[g];
    nearest_values(work, x, inverse_of(scale), minimum, v);
    return cbq_sums_of(x, w, v, work->group);
}

void cbq_nearest_codes(const cbq_work *work, int g, double scale, double minimum, uint8_t *codes) {
    const double *x = work->x + g * work->group, inverse = inverse_of(scale);
    const int offset = work->f->decoder->offset;
    if (work->f->codes == CBQ_CODES_KEPT) return;
    for (int i = 0; i < work->group; i++)
        if (work->f->codes == CBQ_CODES_BOOK) codes[i] = nearest_of_book(work->book, x[i] * inverse);
        else codes[i] = (uint8_t)((int)nearest_integer((x[i] + minimum) * inverse, work->low, work->high) + offset);
}
