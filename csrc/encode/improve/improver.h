/* What the files of this folder share: a format as they see it, and a block at work. Everything is in double: sums of squares
   of floats neither overflow nor vanish there. */
#pragma once
#include "../../word/scalar.h"
#include "../../kernels/decoder.h"
#include "../encode.h"

enum { CBQ_CODES_FREE, CBQ_CODES_BOOK, CBQ_CODES_KEPT };

/* formats/shared/fields.h says what the words of a format's row mean: these fields are made of them. */
typedef struct {
    const cbq_decoder *decoder;
    void (*write)(uint8_t *block, const cbq_fields *fields);
    int codes, low, high;                        /* CBQ_CODES_FREE ..; codes from low to high */
    int scale_bytes;                             /* BYTES */
    double unit, min_unit;                       /* of d, dmin */
    int has_steps, s_low, s_high, s_step, s_plus; /* a group's scale is d * (s_step * s + s_plus) */
    int m_high, m_plus;                          /* a group's minimum is dmin * (m + m_plus) */
} cbq_improver;

/* The improver of a format, or NULL where it has no encoder. */
const cbq_improver *cbq_improver_of(int format);

enum { CBQ_CELLS_PER_UNIT = 4, CBQ_CELLS = 1024 };

/* The nearest of a codebook's values, by cells of a quarter: those on which two values are as near lie between cells. */
typedef struct {
    double low, high, value[16];
    uint8_t code[CBQ_CELLS];
} cbq_book;

/* Weighted sums over a group's numbers x, and over the values v of its codes: value * scale - minimum is decoded. */
typedef struct { double w, x, xx, inverse; } cbq_moments; /* inverse: of w, or 0 */
typedef struct { double v, vv, xv; } cbq_sums;

/* A block: of its groups, what does not change. */
typedef struct {
    const cbq_improver *f;
    const cbq_book *book;
    int groups, group;
    double low, high; /* values of the codes, where they are free */
    double x[256], w[256];
    cbq_moments moments[16];
    cbq_sums kept[16]; /* where codes are kept */
} cbq_work;

/* A scale and a minimum for a group, the sums of the codes that are nearest under them (or were, before the scale was made to
   fit these), and the group's error with these codes. */
typedef struct {
    double scale, minimum, error;
    cbq_sums sums;
} cbq_fit;

/* Errors are compared with a margin, so that another order of summation finds the same. */
CBQ_FN int cbq_is_better(double error, double than) { return error < than * (1 - 1e-9); }

/* The sum of w (x - scale v + minimum)^2. What rounding leaves of it where it is nothing may be below zero. */
CBQ_FN double cbq_error(const cbq_moments *x, const cbq_sums *v, double scale, double minimum) {
    const double of_scale = scale * (scale * v->vv - 2 * v->xv);
    const double of_minimum = minimum * (minimum * x->w + 2 * (x->x - scale * v->v));
    const double error = x->xx + of_scale + of_minimum;
    return error > 0 ? error : 0;
}
/* The scale and minimum that make it smallest, for these codes; both stay as they are where the codes say nothing. */
CBQ_FN void cbq_least_squares(const cbq_work *work, int g, const cbq_sums *v, double *scale, double *minimum) {
    const cbq_moments *x = &work->moments[g];
    if (!work->f->decoder->min) {
        if (v->vv > 0) *scale = v->xv / v->vv;
        return;
    }
    if (!(x->w > 0)) return;
    const double mean = v->v * x->inverse, spread = v->vv - mean * v->v;
    if (spread > 1e-9 * v->vv) *scale = (v->xv - x->x * mean) / spread;
    *minimum = *scale * mean - x->x * x->inverse;
}

/* group.c */
cbq_sums cbq_sums_of(const double *x, const double *w, const double *v, int n);
cbq_sums cbq_nearest_sums(const cbq_work *work, int g, double scale, double minimum);
void cbq_nearest_codes(const cbq_work *work, int g, double scale, double minimum, uint8_t *codes);

/* start.c: scale and minimum of a group for itself, neither of them rounded. `fit` holds those to begin with. */
void cbq_fit_group(const cbq_work *work, int g, cbq_fit *fit);

/* scales.c, bytes.c: better fields for a block; `fields` holds those of the reference, scales and minimums are what they
   decode to. Codes are left to cbq_nearest_codes under the new scales and minimums. */
typedef struct {
    double d, dmin, scale[16], minimum[16];
    int s[16], m[16];
} cbq_scales;
void cbq_improve_scales(const cbq_work *work, cbq_scales *scales);
void cbq_improve_bytes(const cbq_work *work, const double *byte_scales, int n_bytes, cbq_scales *scales);
