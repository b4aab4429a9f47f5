#include "planes.h"

#include "../word/scalar.h"

#include "../formats/mxfp4.h"
#include "check.h"
#include "dequant.h"
#include "write_floats.h"

#define KIND(k) CBQ_CODES_##k
#define BOOK(t) -1
#define FORMAT_ROW(name, code, bits, order, group, scales, finish, multiple) \
    {#name, code, bits, CBQ_##order, group, CBQ_SCALES_##scales, CBQ_##finish, multiple},
const cbq_plane_format cbq_plane_formats[CBQ_N_PLANE_FORMATS] = {CBQ_PLANE_FORMATS(FORMAT_ROW)};
const int cbq_scale_bytes[CBQ_N_SCALE_TYPES] = {
    [CBQ_SCALE_F32] = 4, [CBQ_SCALE_F16] = 2, [CBQ_SCALE_BF16] = 2, [CBQ_SCALE_E8M0] = 1, [CBQ_SCALE_E4M3] = 1};

/* Elements of one step of decoding: a multiple of every group, and whole bytes. */
enum { UNIT = 32 };

int cbq_find_plane_format(const char *name) {
    for (int i = 0; i < CBQ_N_PLANE_FORMATS; i++)
        if (strcmp(cbq_plane_formats[i].name, name) == 0) return i;
    return -1;
}

int cbq_plane_bits(const cbq_planes *p) {
    int bits = cbq_plane_formats[p->format].bits;
    return bits == 6 && !p->packed ? 8 : bits;
}

static int64_t pieces(int64_t n, int64_t size) { return n / size + (n % size != 0); }

int64_t cbq_plane_scales(const cbq_planes *p) {
    if (p->tile_rows == 0) return pieces(p->rows * p->k, p->tile_columns);
    int64_t matrices = p->matrix ? p->rows / p->matrix : 0;
    return matrices * pieces(p->matrix, p->tile_rows) * pieces(p->k, p->tile_columns);
}

int64_t cbq_plane_first_scale(const cbq_planes *p, int64_t row) {
    int64_t tile_row = row / p->matrix * pieces(p->matrix, p->tile_rows) + row % p->matrix / p->tile_rows;
    return tile_row * pieces(p->k, p->tile_columns);
}

/* ---- checks ---- */

static int scale_type_fits(int scales, int type) {
    if (scales == CBQ_SCALES_E8M0) return type == CBQ_SCALE_E8M0;
    if (scales == CBQ_SCALES_E4M3) return type == CBQ_SCALE_E4M3;
    return type <= CBQ_SCALE_BF16 || (scales == CBQ_SCALES_TILES && type == CBQ_SCALE_E8M0);
}

static cbq_code check_sizes(const cbq_planes *p, cbq_status *st) {
    if (p->rows < 0 || p->matrix < 0 || p->k < 0 || p->tile_rows < 0 || p->tile_columns < 1)
        return cbq_fail(st, CBQ_BAD_VALUE, "planes: expected sizes from 0 up and tiles of at least one column");
    if (p->k && p->rows > PTRDIFF_MAX / 8 / p->k) return cbq_fail(st, CBQ_BAD_VALUE, "planes: more elements than any array can have");
    if (p->matrix ? p->rows % p->matrix : p->rows)
        return cbq_fail(st, CBQ_BAD_VALUE, "planes: %lld rows are no whole matrices of %lld", (long long)p->rows, (long long)p->matrix);
    return CBQ_OK;
}

static cbq_code check_tiles(const cbq_planes *p, const cbq_plane_format *f, cbq_status *st) {
    if (f->group && (p->tile_rows != 1 || p->tile_columns != f->group || p->k % f->group))
        return cbq_fail(st, CBQ_BAD_VALUE, "planes: %s has one scale for each %d elements of a row, and rows of whole groups", f->name, f->group);
    if (!f->group && f->bits == 4 && (p->tile_rows || p->tile_columns % 2))
        return cbq_fail(st, CBQ_BAD_VALUE, "planes: %s has flat blocks of an even number of elements", f->name);
    return CBQ_OK;
}

static cbq_code check_bytes(const char *name, int64_t got, int64_t expected, cbq_status *st) {
    if (got == expected) return CBQ_OK;
    return cbq_fail(st, CBQ_BAD_VALUE, "%s: expected %lld bytes, got %lld", name, (long long)expected, (long long)got);
}

cbq_code cbq_check_planes(const cbq_planes *p, cbq_status *st) {
    const cbq_plane_format *f = &cbq_plane_formats[p->format];
    if (check_sizes(p, st) || check_tiles(p, f, st)) return st->code;
    if (!scale_type_fits(f->scales, p->scale_type)) return cbq_fail(st, CBQ_BAD_TYPE, "scales: not of a type that %s has", f->name);
    if (p->global_op != CBQ_GLOBAL_NONE && f->finish != CBQ_GLOBAL)
        return cbq_fail(st, CBQ_BAD_VALUE, "global_scale: %s has none", f->name);
    if (check_bytes("codes", p->codes.bytes, (p->rows * p->k * cbq_plane_bits(p) + 7) / 8, st)) return st->code;
    return check_bytes("scales", p->scales.bytes, cbq_plane_scales(p) * cbq_scale_bytes[p->scale_type], st);
}

/* ---- runs ---- */

/* Every NaN becomes the default one: see CBQ_BF16_QUIET. */
static void quiet(float *scales, int64_t n) {
    for (int64_t i = 0; i < n; i++) scales[i] = scales[i] == scales[i] ? scales[i] : cbq_as_f32(0x7fc00000u);
}

void cbq_load_scales(const cbq_planes *p, const cbq_level *level, int64_t first, int64_t n, float *to) {
    const uint8_t *from = p->scales.data + first * cbq_scale_bytes[p->scale_type];
    uint8_t *y = (uint8_t *)to;
    switch ((cbq_scale_type)p->scale_type) {
    case CBQ_SCALE_F32: memcpy(to, from, (size_t)n * 4); break;
    case CBQ_SCALE_F16: level->kernels->to_float[cbq_find_format("f16")][CBQ_F32](from, y, n); break;
    case CBQ_SCALE_BF16: level->kernels->to_float[cbq_find_format("bf16")][CBQ_F32](from, y, n); break;
    case CBQ_SCALE_E8M0: level->codecs->to_float[CBQ_CODES_e8m0][CBQ_UNPACKED][CBQ_F32](from, y, n); return;
    default: level->codecs->to_float[CBQ_CODES_e4m3fn][CBQ_UNPACKED][CBQ_F32](from, y, n); return;
    }
    quiet(to, n);
}

/* The scales of an element and of those that follow in its row, or among flat blocks. */
static void fill_cursor(const cbq_planes *p, const cbq_level *level, cbq_cursor *c, int64_t element) {
    const int64_t columns = p->tile_columns, line = p->tile_rows ? p->k : p->rows * p->k;
    const int64_t row = element / line, group = element % line / columns, left = pieces(line, columns) - group;
    const int64_t n = left < CBQ_CURSOR_SCALES ? left : CBQ_CURSOR_SCALES, end = (group + n) * columns;
    cbq_load_scales(p, level, (p->tile_rows ? cbq_plane_first_scale(p, row) : 0) + group, n, c->scales);
    c->begin = row * line + group * columns;
    c->end = row * line + (end < line ? end : line);
}

/* What becomes of a run; `at`: of its first element among those that were asked for. */
typedef void run_fn(void *context, const cbq_plane_run *run, int64_t at);

/* The runs of n elements: whole groups as far as they go, parts of one at the ends. Offsets from the cursor are small: 32 bits
   divide faster. */
static void for_runs(const cbq_planes *p, const cbq_level *level, cbq_cursor *c, int64_t element, int64_t n, run_fn *fn, void *context) {
    const int bits = cbq_plane_bits(p);
    const int64_t columns = p->tile_columns;
    for (int64_t done = 0, step; done < n; done += step, element += step) {
        if (element < c->begin || element >= c->end) fill_cursor(p, level, c, element);
        const int64_t left = n - done < c->end - element ? n - done : c->end - element, offset = element - c->begin;
        const int is_small = (uint64_t)offset <= UINT32_MAX && (uint64_t)columns <= UINT32_MAX;
        const int64_t group = is_small ? (uint32_t)offset / (uint32_t)columns : offset / columns, inside = offset - group * columns;
        cbq_plane_run run = {.scales = c->scales + group, .global = p->global, .global_op = p->global_op,
                             .codes = p->codes.data + element * bits / 8, .group = columns};
        if (inside || left < columns) step = run.group = columns - inside < left ? columns - inside : left;
        else step = is_small && left <= UINT32_MAX ? left - (uint32_t)left % (uint32_t)columns : left / columns * columns;
        run.n = step;
        fn(context, &run, done);
    }
}

typedef struct {
    cbq_plane_to_float_fn *to_float;
    uint8_t *y;
    int64_t size;
} float_task;
static float_task float_task_of(const cbq_planes *p, const cbq_level *level, int dtype, uint8_t *y) {
    return (float_task){level->planes->to_float[p->format][p->packed][dtype], y, dtype == CBQ_F32 ? 4 : 2};
}
static void run_to_float(void *context, const cbq_plane_run *run, int64_t at) {
    const float_task *t = context;
    t->to_float(run, t->y + at * t->size);
}

/* A code in the upper half of a byte: both of the byte, of which one is wanted. */
static void second_of_byte(const cbq_planes *p, const cbq_level *level, int64_t element, float_task t) {
    uint8_t both[8];
    float scale;
    cbq_load_scales(p, level, element / p->tile_columns, 1, &scale);
    cbq_plane_run run = {.codes = p->codes.data + element / 2, .scales = &scale, .n = 2, .group = 2};
    t.to_float(&run, both);
    memcpy(t.y, both + t.size, (size_t)t.size);
}

static void elements_to_float(const cbq_planes *p, const cbq_level *level, cbq_cursor *c, int64_t element, int64_t n, int dtype, uint8_t *y) {
    float_task t = float_task_of(p, level, dtype, y);
    for_runs(p, level, c, element, n, run_to_float, &t);
}

void cbq_planes_to_float(const cbq_planes *p, const cbq_level *level, int64_t row, int64_t at, int64_t n, int dtype, uint8_t *y) {
    float_task t = float_task_of(p, level, dtype, y);
    cbq_cursor cursor;
    cbq_drop_scales(&cursor);
    int64_t element = row * p->k + at;
    if (n > 0 && element * cbq_plane_bits(p) % 8) { /* flat blocks of rows of an odd length */
        second_of_byte(p, level, element, t);
        t.y += t.size;
        element++, n--;
    }
    for_runs(p, level, &cursor, element, n, run_to_float, &t);
}

typedef struct {
    cbq_plane_dot_fn *dot;
    const float *x;
    int64_t stride;
    int m;
    float *y;
} dot_task;
static void run_dot(void *context, const cbq_plane_run *run, int64_t at) {
    const dot_task *t = context;
    cbq_prefetch((uintptr_t)run->codes + CBQ_AHEAD, 1);
    t->dot(run, t->x + at, t->stride, t->m, t->y);
}
void cbq_planes_dot(const cbq_planes *p, const cbq_level *level, int64_t row, int64_t at, int64_t n, const float *x, int64_t stride, int m,
                    float *y) {
    dot_task t = {level->planes->dot[p->format][p->packed], x, stride, m, y};
    for (int i = 0; i < m; i++) y[i] = 0;
    cbq_cursor cursor;
    cbq_drop_scales(&cursor);
    for_runs(p, level, &cursor, row * p->k + at, n, run_dot, &t);
}

typedef struct {
    cbq_plane_to_bytes_fn *to_bytes;
    uint8_t *blocks;
    int block_bytes;
} bytes_task;
static void run_to_bytes(void *context, const cbq_plane_run *run, int64_t at) {
    const bytes_task *t = context;
    t->to_bytes(run, t->blocks + at / UNIT * t->block_bytes);
}
void cbq_planes_to_bytes(const cbq_planes *p, const cbq_level *level, int64_t row, int64_t at, int64_t n, uint8_t *blocks, int block_bytes) {
    bytes_task t = {level->planes->to_bytes[p->format], blocks, block_bytes};
    cbq_cursor cursor;
    cbq_drop_scales(&cursor);
    for_runs(p, level, &cursor, row * p->k + at, n, run_to_bytes, &t);
}

void cbq_pairs_to_blocks(const cbq_planes *p, int64_t row, int64_t at, int64_t n, uint8_t *blocks) {
    const int64_t first = (row * p->k + at) / UNIT;
    const uint8_t *codes = p->codes.data + first * UNIT / 2, *scales = p->scales.data + first;
    cbq_mxfp4_block *b = (cbq_mxfp4_block *)blocks;
    for (int64_t i = 0; i < n / UNIT; i++) {
        b[i].x[0] = scales[i];
        memcpy(b[i].qs, codes + i * sizeof b->qs, sizeof b->qs);
    }
}

/* ---- whole arrays ---- */

static void decode_units(const void *context, cbq_cursor *cursor, int64_t first, int64_t n, uint8_t *y) {
    const cbq_dequant_planes_args *a = context;
    elements_to_float(&a->planes, a->level, cursor, first * UNIT, n * UNIT, a->dtype, y);
}

cbq_code cbq_dequant_planes(const cbq_dequant_planes_args *a, cbq_status *st) {
    const cbq_planes *p = &a->planes;
    if (cbq_check_planes(p, st)) return st->code;
    const int64_t size = a->dtype == CBQ_F32 ? 4 : 2, n = p->rows * p->k, units = n / UNIT;
    if (check_bytes("out", a->out.bytes, n * size, st)) return st->code;
    if (cbq_overlap(p->codes, a->out)) return cbq_fail(st, CBQ_BAD_VALUE, "out: expected memory of its own, it overlaps codes");
    if (cbq_overlap(p->scales, a->out)) return cbq_fail(st, CBQ_BAD_VALUE, "out: expected memory of its own, it overlaps scales");
    if (n == 0) return CBQ_OK;
    cbq_float_job job = {.decode_at = decode_units, .context = a, .kernels = a->level->kernels, .blocks = p->codes.data, .out = a->out.data,
                         .block_bytes = UNIT * cbq_plane_bits(p) / 8, .out_bytes = UNIT * size};
    const int threads = n < CBQ_DEQUANT_MIN_PARALLEL ? 1 : cbq_resolve_threads(a->threads);
    cbq_write_floats(&job, units, UNIT, threads, a->stream);
    cbq_cursor cursor;
    cbq_drop_scales(&cursor);
    elements_to_float(p, a->level, &cursor, units * UNIT, n - units * UNIT, a->dtype, a->out.data + units * UNIT * size);
    return CBQ_OK;
}
