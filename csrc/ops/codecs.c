#include "codecs.h"

#include "check.h"
#include "write_floats.h"

enum { GRAIN = 1 << 16, TILE = 1024 }; /* elements that one thread takes, and that are turned into float32, at a time */

#define CODE_ROW(name, exponent, mantissa, bias, top) {#name, {exponent, mantissa, bias, CBQ_TOP_##top}},
const cbq_code_row cbq_code_rows[CBQ_N_CODE_KINDS] = {CBQ_CODE_KINDS(CODE_ROW)};

int cbq_find_code_kind(const char *name) {
    for (int i = 0; i < CBQ_N_CODE_KINDS; i++)
        if (strcmp(cbq_code_rows[i].name, name) == 0) return i;
    return -1;
}

double cbq_largest_value(cbq_code_kind k) {
    const int code = cbq_code_largest(k), one = 1 << k.mantissa;
    if (k.top == CBQ_TOP_FIXED) return (double)code / one;
    int exponent = (code >> k.mantissa) - k.bias;
    double scale = exponent < 0 ? 1.0 / (double)(UINT64_C(1) << -exponent) : exponent < 64 ? (double)(UINT64_C(1) << exponent) : 0x1p127;
    return scale * (one + code % one) / one;
}

/* How many blocks of codes there are, and whether the floats are as many elements. */
static cbq_code count(int kind, int packed, int64_t code_bytes, const char *codes, int64_t float_bytes, int64_t size, const char *floats,
                      int64_t *n, cbq_status *st) {
    const cbq_code_row *row = &cbq_code_rows[kind];
    const int64_t block = cbq_block_bytes(row->kind, packed), elements = cbq_codes_of_block(row->kind, packed);
    if (code_bytes % block)
        return cbq_fail(st, CBQ_BAD_VALUE, "%s: %lld bytes are not a multiple of %lld (%lld codes of %s)", codes, (long long)code_bytes,
                        (long long)block, (long long)elements, row->name);
    *n = code_bytes / block;
    if (float_bytes % size == 0 && float_bytes / size % elements == 0 && float_bytes / size / elements == *n) return CBQ_OK;
    return cbq_fail(st, CBQ_BAD_VALUE, "%s: expected %lld elements for %lld bytes of %s in %s, got %lld bytes", floats,
                    (long long)(*n * elements), (long long)code_bytes, row->name, codes, (long long)float_bytes);
}

static int threads_for(int64_t elements, int asked) { return elements < CBQ_CODES_MIN_PARALLEL ? 1 : cbq_resolve_threads(asked); }

cbq_code cbq_decode_codes(const cbq_decode_codes_args *a, cbq_status *st) {
    const cbq_code_kind k = cbq_code_rows[a->kind].kind;
    const int64_t size = a->dtype == CBQ_F32 ? 4 : 2;
    const int packed = cbq_code_bits(k) < 8 ? a->packed : CBQ_UNPACKED, elements = cbq_codes_of_block(k, packed);
    int64_t n = 0;
    if (count(a->kind, packed, a->codes.bytes, "codes", a->out.bytes, size, "out", &n, st)) return st->code;
    if (cbq_overlap(a->codes, a->out)) return cbq_fail(st, CBQ_BAD_VALUE, "out: expected memory of its own, it overlaps codes");
    cbq_float_job job = {.decode = a->level->codecs->to_float[a->kind][packed][a->dtype],
                         .kernels = a->level->kernels,
                         .blocks = a->codes.data,
                         .out = a->out.data,
                         .block_bytes = cbq_block_bytes(k, packed),
                         .out_bytes = elements * size};
    cbq_write_floats(&job, n, elements, threads_for(n * elements, a->threads), a->stream);
    return CBQ_OK;
}

/* ---- floats to codes ---- */

typedef struct {
    const cbq_encode_codes_args *a;
    int packed, elements, block_bytes; /* of a block of codes */
    int source_bytes;
} task;

static int is_f64(const task *t) { return t->source_bytes == 8; }
static const uint8_t *source_at(const task *t, int64_t i) { return t->a->x.data + i * t->source_bytes; }

/* n elements from number i on as float32: in place or converted, float64 so that rounding it once more is exact. */
static const float *as_floats(const task *t, int64_t i, int64_t n, float tile[TILE]) {
    const uint8_t *x = source_at(t, i);
    if (t->source_bytes == 4) return (const float *)(const void *)x;
    if (is_f64(t)) t->a->level->codecs->round_to_odd(x, tile, n);
    else t->a->level->kernels->to_float[t->a->source][CBQ_F32](x, (uint8_t *)tile, n);
    return tile;
}

static void encode_range(void *context, int64_t begin, int64_t end) {
    const task *t = context;
    const cbq_encode_codes_args *a = t->a;
    cbq_to_codes_fn *encode = a->level->codecs->to_codes[a->kind][t->packed];
    const int64_t step = t->source_bytes == 4 ? end - begin : TILE / t->elements;
    float tile[TILE];
    for (; begin < end; begin += step) {
        int64_t n = end - begin < step ? end - begin : step;
        const float *x = as_floats(t, begin * t->elements, n * t->elements, tile);
        encode(x, a->out.data + begin * t->block_bytes, n, a->saturate);
    }
}

/* The rule of GGUF wants float32 rounded to nearest, the others every bit. */
static void scale_range(void *context, int64_t begin, int64_t end) {
    const task *t = context;
    const cbq_encode_codes_args *a = t->a;
    const int is_ggml = a->rule.rule == CBQ_SCALE_GGML;
    float tile[TILE];
    for (; begin < end; begin += TILE) {
        int64_t n = end - begin < TILE ? end - begin : TILE;
        const double *doubles = (const double *)(const void *)source_at(t, begin);
        const float *x = is_f64(t) ? NULL : as_floats(t, begin, n, tile);
        uint8_t *codes = a->out.data + begin;
        for (int64_t i = 0; i < n; i++)
            codes[i] = is_ggml ? cbq_scale_code_ggml(x ? x[i] : (float)doubles[i]) : cbq_scale_code(x ? (double)x[i] : doubles[i], &a->rule);
    }
}

static cbq_code check_rule(const cbq_scale_rule *r, cbq_status *st) {
    if (r->rule == CBQ_SCALE_CEIL && !(r->largest >= 0x1p-126 && r->largest <= 0x1.fffffffffffffp1023))
        return cbq_fail(st, CBQ_BAD_VALUE, "largest: expected a finite number from 2^-126 up, got %g", r->largest);
    if (r->rule == CBQ_SCALE_EVEN && (r->mbits < 0 || r->mbits > CBQ_SCALE_MAX_MBITS))
        return cbq_fail(st, CBQ_BAD_VALUE, "mbits: expected 0 to %d, got %d", CBQ_SCALE_MAX_MBITS, r->mbits);
    if (r->emax < -CBQ_SCALE_MAX_EMAX || r->emax > CBQ_SCALE_MAX_EMAX)
        return cbq_fail(st, CBQ_BAD_VALUE, "emax: expected %d to %d, got %d", -CBQ_SCALE_MAX_EMAX, CBQ_SCALE_MAX_EMAX, r->emax);
    return CBQ_OK;
}

cbq_code cbq_encode_codes(const cbq_encode_codes_args *a, cbq_status *st) {
    const cbq_code_kind k = cbq_code_rows[a->kind].kind;
    const int is_scale = k.top == CBQ_TOP_SCALE;
    task t = {.a = a, .packed = cbq_code_bits(k) < 8 ? a->packed : CBQ_UNPACKED, .source_bytes = cbq_formats[a->source].bytes};
    t.elements = cbq_codes_of_block(k, t.packed), t.block_bytes = cbq_block_bytes(k, t.packed);
    int64_t n = 0;
    if (count(a->kind, t.packed, a->out.bytes, "out", a->x.bytes, t.source_bytes, "x", &n, st)) return st->code;
    if (cbq_overlap(a->x, a->out)) return cbq_fail(st, CBQ_BAD_VALUE, "out: expected memory of its own, it overlaps x");
    if (is_scale && check_rule(&a->rule, st)) return st->code;
    cbq_parallel(n, GRAIN / t.elements, threads_for(n * t.elements, a->threads), is_scale ? scale_range : encode_range, &t);
    return CBQ_OK;
}
