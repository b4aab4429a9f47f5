#include "quantize_planes.h"

#include <math.h>
#include <stdlib.h>

#include "check.h"
#include "codecs.h"
#include "nonfinite_x.h"
#include "quantize.h"

/* Elements that one thread takes at a time, and those that are float32 at a time, in the first-level cache. */
enum { PIECE = 1 << 15, STEP = 1 << 12 };

/* x is cut into lines: flat blocks, or rows. A scale belongs to a line's group (or to those of several lines). */
typedef struct {
    cbq_quantize_planes_args *a;
    const cbq_planes *p;
    const cbq_plane_format *f;
    int64_t n, line, group, source_bytes; /* elements in all, of a line, of a group */
    int bits, has_maxima;                 /* whether scales need a pass of their own */
    double largest_code;
    cbq_scale_rule rule;                  /* of scales in E8M0 */
    _Atomic uint32_t *maxima;             /* by scale, as bits of a float32; or one for all */
    cbq_first_nonfinite nonfinite;
    _Atomic uint32_t too_large;           /* a magnitude whose scale its type cannot hold */
} task;

/* ---- x ---- */

/* n elements from number `first` on as float32: in place or converted. */
static const float *as_floats(const task *t, int64_t first, int64_t n, float tile[STEP]) {
    const uint8_t *x = t->a->x.data + first * t->source_bytes;
    if (t->source_bytes == 4) return (const float *)(const void *)x;
    t->a->level->kernels->to_float[t->a->source][CBQ_F32](x, (uint8_t *)tile, n);
    return tile;
}

/* The largest magnitude; 0 where there is NaN or infinity, which is remembered. */
static float largest_of(task *t, int64_t first, int64_t n) {
    float tile[STEP], largest = 0;
    for (int64_t i = 0, step; i < n; i += step) {
        step = n - i < STEP ? n - i : STEP;
        const float *x = as_floats(t, first + i, step, tile);
        if (cbq_look_for_nonfinite(&t->nonfinite, t->a->level, x, first + i, step)) return 0;
        float here = t->a->level->planes->largest(x, step);
        largest = here > largest ? here : largest;
    }
    return largest;
}

static void encode_part(task *t, int64_t first, int64_t n, float scale) {
    cbq_plane_encode_fn *encode = t->a->level->planes->encode[t->p->format][t->p->packed];
    float tile[STEP];
    for (int64_t i = 0, step; i < n; i += step) {
        step = n - i < STEP ? n - i : STEP;
        encode(as_floats(t, first + i, step, tile), step, scale, t->a->codes.data + (first + i) * t->bits / 8);
    }
}

/* ---- scales ---- */

static void raise_to(_Atomic uint32_t *maximum, float value) {
    uint32_t bits = cbq_as_u32(value), old = atomic_load(maximum); /* floats from 0 up are in the order of their bits */
    while (bits > old && !atomic_compare_exchange_weak(maximum, &old, bits)) {}
}

/* The number as float32 once it was rounded to a type of scales, and its bytes. */
static float round_scale(const task *t, float largest, uint8_t bytes[4]) {
    const cbq_level *level = t->a->level;
    float scale = (float)((double)largest / t->largest_code);
    uint16_t half;
    switch ((cbq_scale_type)t->p->scale_type) {
    case CBQ_SCALE_E8M0:
        bytes[0] = cbq_scale_code((double)largest, &t->rule);
        level->codecs->to_float[CBQ_CODES_e8m0][CBQ_UNPACKED][CBQ_F32](bytes, (uint8_t *)&scale, 1);
        return scale;
    case CBQ_SCALE_E4M3:
        scale = t->p->global_op == CBQ_GLOBAL_DIVIDE ? scale * t->p->global : scale / t->p->global;
        level->codecs->to_codes[CBQ_CODES_e4m3fn][CBQ_UNPACKED](&scale, bytes, 1, 1);
        level->codecs->to_float[CBQ_CODES_e4m3fn][CBQ_UNPACKED][CBQ_F32](bytes, (uint8_t *)&scale, 1);
        return t->p->global_op == CBQ_GLOBAL_DIVIDE ? scale / t->p->global : scale * t->p->global;
    case CBQ_SCALE_F16:
        half = cbq_f32_to_f16(scale);
        memcpy(bytes, &half, 2);
        return cbq_f16_to_f32(half);
    case CBQ_SCALE_BF16:
        half = cbq_f32_to_bf16(scale);
        memcpy(bytes, &half, 2);
        return cbq_as_f32((uint32_t)half << 16);
    default: memcpy(bytes, &scale, 4); return scale;
    }
}

/* Scale number i, chosen for a largest magnitude, written and returned. */
static float write_scale(task *t, int64_t i, float largest) {
    uint8_t bytes[4];
    float scale = round_scale(t, largest, bytes);
    const int size = cbq_scale_bytes[t->p->scale_type];
    memcpy(t->a->scales.data + i * size, bytes, (size_t)size);
    if (!(scale <= 0x1.fffffep127f)) raise_to(&t->too_large, largest);
    return scale;
}

static int64_t scale_of(const task *t, int64_t line) { return t->p->tile_rows ? cbq_plane_first_scale(t->p, line) : line; }

/* ---- passes ---- */

/* The largest magnitudes of what lies under each scale, or in all of x. */
static void look_at_lines(void *context, int64_t begin, int64_t end) {
    task *t = context;
    const int for_all = t->f->finish == CBQ_GLOBAL;
    for (int64_t line = begin; line < end; line++) {
        const int64_t first = line * t->line;
        if (cbq_is_behind_nonfinite(&t->nonfinite, first)) return;
        if (for_all) {
            raise_to(t->maxima, largest_of(t, first, t->line));
            continue;
        }
        const int64_t scale = scale_of(t, line);
        for (int64_t at = 0, i = 0; at < t->line; at += t->group, i++)
            raise_to(t->maxima + scale + i, largest_of(t, first + at, t->line - at < t->group ? t->line - at : t->group));
    }
}

static void encode_lines(void *context, int64_t begin, int64_t end) {
    task *t = context;
    for (int64_t line = begin; line < end; line++) {
        const int64_t first = line * t->line, length = t->n - first < t->line ? t->n - first : t->line;
        if (cbq_is_behind_nonfinite(&t->nonfinite, first)) return;
        int64_t scale = scale_of(t, line);
        for (int64_t at = 0; at < length; at += t->group, scale++) {
            const int64_t n = length - at < t->group ? length - at : t->group;
            float value;
            if (t->has_maxima) cbq_load_scales(t->p, t->a->level, scale, 1, &value);
            else value = write_scale(t, scale, largest_of(t, first + at, n));
            encode_part(t, first + at, n, value);
        }
    }
}

/* The scale of a whole tensor, from its largest magnitude: the largest block scale and the largest code then reach it. It is never
   below the smallest normal float32, whose reciprocal is finite and which loses no bits: of smaller tensors, block scales are
   smaller. */
static float global_of(const task *t, float largest) {
    const double reach = t->largest_code * cbq_largest_value(cbq_code_rows[CBQ_CODES_e4m3fn].kind);
    float scale = (float)((double)largest / reach);
    if (largest == 0) return 1;
    if (scale < 0x1p-126f) scale = 0x1p-126f;
    return t->p->global_op == CBQ_GLOBAL_DIVIDE ? 1 / scale : scale;
}

static cbq_code find_maxima(task *t, int64_t lines, int64_t grain, int threads, cbq_status *st) {
    const int for_all = t->f->finish == CBQ_GLOBAL;
    const int64_t n = for_all ? 1 : cbq_plane_scales(t->p);
    t->maxima = calloc((size_t)n, sizeof *t->maxima);
    if (!t->maxima) return cbq_fail(st, CBQ_NO_MEMORY, "no memory for %lld scales", (long long)n);
    cbq_parallel(lines, grain, threads, look_at_lines, t);
    if (cbq_check_finite(&t->nonfinite, t->n, t->p->k, st)) return st->code;
    if (for_all) t->a->planes.global = global_of(t, cbq_as_f32(atomic_load(t->maxima)));
    else for (int64_t i = 0; i < n; i++) write_scale(t, i, cbq_as_f32(atomic_load(t->maxima + i)));
    return CBQ_OK;
}

static cbq_code encode(task *t, cbq_status *st) {
    const int64_t lines = t->n / t->line + (t->n % t->line != 0), grain = t->line < PIECE ? PIECE / t->line : 1;
    const int threads = t->n < CBQ_QUANTIZE_MIN_PARALLEL ? 1 : cbq_resolve_threads(t->a->threads);
    const int chooses_global = t->p->global_op != CBQ_GLOBAL_NONE && t->p->global == 0;
    if ((t->has_maxima || chooses_global) && find_maxima(t, lines, grain, threads, st)) return st->code;
    cbq_parallel(lines, grain, threads, encode_lines, t);
    if (cbq_check_finite(&t->nonfinite, t->n, t->p->k, st)) return st->code;
    if (!atomic_load(&t->too_large)) return CBQ_OK;
    return cbq_fail(st, CBQ_BAD_VALUE, "x: a magnitude of %g needs a scale that the scales' type cannot hold",
                    (double)cbq_as_f32(atomic_load(&t->too_large)));
}

cbq_code cbq_quantize_planes(cbq_quantize_planes_args *a, cbq_status *st) {
    const cbq_planes *p = &a->planes;
    const cbq_plane_format *f = &cbq_plane_formats[p->format];
    if (cbq_check_planes(p, st)) return st->code;
    if (cbq_check_rows("x", a->x.bytes, p->rows, p->k * cbq_formats[a->source].bytes, st)) return st->code;
    if (cbq_overlap(a->x, a->codes) || cbq_overlap(a->x, a->scales)) return cbq_fail(st, CBQ_BAD_VALUE, "x: expected memory apart from the planes");
    task t = {.a = a, .p = p, .f = f, .n = p->rows * p->k, .source_bytes = cbq_formats[a->source].bytes, .bits = cbq_plane_bits(p),
              .line = p->tile_rows ? p->k : p->tile_columns, .group = p->tile_columns, .has_maxima = p->tile_rows > 1,
              .largest_code = f->code < 0 ? 1 : cbq_largest_value(cbq_code_rows[f->code].kind)};
    if (t.n == 0) {
        if (p->global_op != CBQ_GLOBAL_NONE && p->global == 0) a->planes.global = 1;
        return CBQ_OK;
    }
    t.rule = (cbq_scale_rule){.rule = CBQ_SCALE_FLOOR, .emax = ilogb(t.largest_code), .largest = t.largest_code};
    atomic_init(&t.nonfinite.at, t.n);
    encode(&t, st);
    free(t.maxima);
    return st->code;
}
