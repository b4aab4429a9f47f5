/* Blocks from an encoder, made better one by one. */
#include "../improve.h"
#include "improver.h"

/* ---- a block as its decoder sees it ---- */

typedef struct {
    float d, dmin, scale[16], minimum[16]; /* d and dmin included */
    int s[16], m[16];                      /* what these are made of: stored scales and minimums */
    float v[256];                          /* scale * v - minimum is decoded */
} parts;

CBQ_FN int byte_of(uint32_t four, int i) { return (int8_t)(four >> 8 * i); }

static void read_scales(const cbq_improver *f, const uint8_t *b, parts *p) {
    const cbq_decoder *decoder = f->decoder;
    p->d = decoder->scales == CBQ_FLOATS ? 1 : decoder->d(b);
    p->dmin = decoder->min ? decoder->dmin(b) : 0;
    for (int g = 0; g < decoder->elements / decoder->group; g++) {
        const uint32_t at = (uint32_t)g, four = at / 4;
        const int s = decoder->scales == CBQ_GROUPS ? byte_of(decoder->s4(b, four), g % 4) : 1;
        const int m = decoder->min == CBQ_MIN_GROUPS ? byte_of(decoder->m4(b, four), g % 4) : 1;
        p->s[g] = f->has_steps ? (s - f->s_plus) / f->s_step : 0;
        p->m[g] = f->m_high ? m : 0;
        p->scale[g] = decoder->scales == CBQ_FLOATS ? decoder->s(b, at) : p->d * (float)s;
        p->minimum[g] = p->dmin * (float)m;
    }
}
static void read_block(const cbq_improver *f, const uint8_t *b, parts *p) {
    const cbq_decoder *decoder = f->decoder;
    read_scales(f, b, p);
    for (int i = 0; i < decoder->elements; i += 4) {
        const W codes = decoder->codes(b, (uint32_t)i / 32, (uint32_t)i % 32);
        for (int j = 0; j < 4; j++) {
            const int code = byte_of(codes, j);
            p->v[i + j] = f->codes == CBQ_CODES_BOOK ? decoder->table[code] : (float)(code - decoder->offset);
        }
    }
}

/* The error of a block in the floats that its decoder gives. */
static double error_of(const cbq_work *work, const parts *p) {
    double sum = 0;
    for (int i = 0; i < work->groups * work->group; i++) {
        const int g = i / work->group;
        float y = p->scale[g] * p->v[i];
        if (work->f->decoder->min) y -= p->minimum[g];
        const double off = work->x[i] - (double)y;
        sum += work->w[i] * (off * off);
    }
    return sum;
}

/* ---- what a format has in common for all blocks ---- */

typedef struct {
    cbq_book book;
    double byte_scales[256];
    int n_bytes;
} tables;

static double distance(double a, double b) { return a < b ? b - a : a - b; }

static void make_book(const float *values, cbq_book *book) {
    book->low = book->high = 0;
    for (int i = 0; i < 16; i++) {
        book->value[i] = values[i];
        if (values[i] < book->low) book->low = values[i];
        if (values[i] > book->high) book->high = values[i];
    }
    for (int cell = 0; cell < CBQ_CELLS; cell++) {
        const double middle = book->low + (cell + 0.5) / CBQ_CELLS_PER_UNIT;
        int code = 0;
        for (int i = 1; i < 16; i++)
            if (distance(book->value[i], middle) < distance(book->value[code], middle)) code = i;
        book->code[cell] = (uint8_t)code;
    }
}
/* The decoder is asked what each byte stands for. */
static void make_byte_scales(const cbq_improver *f, tables *t) {
    uint8_t block[256] = {0};
    cbq_fields fields;
    parts p;
    memset(&fields, 0, sizeof fields);
    for (t->n_bytes = 0; t->n_bytes < 256; t->n_bytes++) {
        fields.s[0] = (uint8_t)t->n_bytes;
        f->write(block, &fields);
        read_scales(f, block, &p);
        const double scale = (double)p.scale[0];
        if (!(scale < __builtin_inf()) || (t->n_bytes && scale <= t->byte_scales[t->n_bytes - 1])) return;
        t->byte_scales[t->n_bytes] = scale;
    }
}

/* ---- a block at work ---- */

static void begin(const cbq_improver *f, const tables *t, cbq_work *work) {
    const int offset = f->decoder->offset;
    work->f = f;
    work->book = &t->book;
    work->group = f->decoder->group;
    work->groups = f->decoder->elements / f->decoder->group;
    work->low = f->codes == CBQ_CODES_BOOK ? t->book.low : f->low - offset;
    work->high = f->codes == CBQ_CODES_BOOK ? t->book.high : f->high - offset;
}

static void add_up_group(const parts *p, cbq_work *work, int g) {
    const int from = g * work->group;
    cbq_moments x = {0, 0, 0, 0};
    double v[256];
    for (int i = 0; i < work->group; i++) {
        const double w = work->w[from + i], wx = w * work->x[from + i];
        x.w += w, x.x += wx, x.xx += wx * work->x[from + i];
        v[i] = (double)p->v[from + i];
    }
    x.inverse = x.w > 0 ? 1 / x.w : 0;
    work->moments[g] = x;
    if (work->f->codes == CBQ_CODES_KEPT) work->kept[g] = cbq_sums_of(work->x + from, work->w + from, v, work->group);
}
/* 0 where a number is NaN or infinite: the block means nothing. */
static int take_block(const float *x, const float *importance, const parts *p, cbq_work *work) {
    int finite = 1;
    for (int i = 0; i < work->groups * work->group; i++) {
        work->x[i] = (double)x[i];
        work->w[i] = importance ? (double)importance[i] : 1;
        finite &= x[i] - x[i] == 0;
    }
    for (int g = 0; g < work->groups && finite; g++) add_up_group(p, work, g);
    return finite;
}

static double finite_or_zero(float x) { return x - x == 0 ? (double)x : 0; }

static void begin_scales(const cbq_work *work, const tables *t, const parts *p, cbq_scales *scales) {
    scales->d = finite_or_zero(p->d), scales->dmin = finite_or_zero(p->dmin);
    for (int g = 0; g < work->groups; g++) {
        scales->scale[g] = finite_or_zero(p->scale[g]), scales->minimum[g] = finite_or_zero(p->minimum[g]);
        scales->s[g] = p->s[g], scales->m[g] = p->m[g];
        for (int byte = 0; byte < t->n_bytes; byte++)
            if (t->byte_scales[byte] == scales->scale[g]) scales->s[g] = byte;
    }
}

static uint16_t f16_bits(double d, double unit) { return cbq_f32_to_f16((float)(d / unit)); }

static void make_fields(const cbq_work *work, const cbq_scales *scales, cbq_fields *fields) {
    const cbq_improver *f = work->f;
    fields->d = f->scale_bytes ? 0 : f16_bits(scales->d, f->unit);
    fields->dmin = f->decoder->min ? f16_bits(scales->dmin, f->min_unit) : 0;
    for (int g = 0; g < work->groups; g++) {
        fields->s[g] = (uint8_t)scales->s[g], fields->m[g] = (uint8_t)scales->m[g];
        cbq_nearest_codes(work, g, scales->scale[g], scales->minimum[g], fields->codes + g * work->group);
    }
}

static void improve_block(cbq_work *work, const tables *t, const float *x, const float *importance, uint8_t *block) {
    uint8_t changed[256];
    parts p;
    cbq_scales scales;
    cbq_fields fields;
    read_block(work->f, block, &p);
    if (!take_block(x, importance, &p, work)) return;
    const double reference = error_of(work, &p);
    if (reference == 0) return;
    begin_scales(work, t, &p, &scales);
    if (work->f->scale_bytes) cbq_improve_bytes(work, t->byte_scales, t->n_bytes, &scales);
    else cbq_improve_scales(work, &scales);
    make_fields(work, &scales, &fields);
    memcpy(changed, block, (size_t)work->f->decoder->bytes);
    work->f->write(changed, &fields);
    read_block(work->f, changed, &p);
    const double error = error_of(work, &p);
    if (cbq_is_better(error, reference) || (error - error == 0 && reference - reference != 0))
        memcpy(block, changed, (size_t)work->f->decoder->bytes);
}

void cbq_improve(int format, const cbq_encode_args *a) {
    const cbq_improver *f = cbq_improver_of(format);
    tables t = {.n_bytes = 0};
    cbq_work work;
    if (!f) return;
    if (f->codes == CBQ_CODES_BOOK) make_book(f->decoder->table, &t.book);
    if (f->scale_bytes) make_byte_scales(f, &t);
    begin(f, &t, &work);
    for (int64_t i = 0; i < a->n; i++) {
        const float *importance = a->importance ? a->importance + i % a->row_blocks * f->decoder->elements : NULL;
        improve_block(&work, &t, a->x + i * f->decoder->elements, importance, a->out + i * f->decoder->bytes);
    }
}
