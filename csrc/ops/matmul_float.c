#include "matmul_float.h"

#include <stdlib.h>

#include "product.h"
#include "scratch.h"
#include "weights.h"

/* A piece of work is some rows of w, times all of x.
   PANEL_ROWS rows of PANEL_BYTES are decoded at a time: 200 KiB, for the second-level cache. X_ROWS rows of x, equally long,
   share that cache with them. A row of 4 KiB fills each set of a usual first-level cache once, so a tile's rows get along
   there wherever they lie.
   In one pass, DOT_ROWS rows are multiplied with the same part of x, whole blocks of any format (DOT_UNIT elements), which stays in the
   first-level cache: dot_x_bytes of kernels/kernels.h.
   Before that x is copied, X_PIECE elements at a time. */
enum { PANEL_BYTES = 4096, PANEL_K = PANEL_BYTES / 4, PANEL_ROWS = 48, X_ROWS = 64, PAD = 64, DOT_ELEMENTS = 1 << 16, DOT_ROWS = 16,
       DOT_UNIT = 256, X_PIECE = 1 << 16 };

typedef struct {
    const cbq_matmul_args *a;
    const cbq_kernels *kernels;
    cbq_scratch *scratch;
    cbq_tile_fn *tile;
    uint8_t *x;           /* m rows of k elements of `bytes`, zeros up to whole vectors */
    int64_t x_stride, k_step, panel_stride;
    int bytes, round;     /* of an element of x and of the panel; whether these are floats rounded to bf16 */
    int f32, bf16, plain; /* the indices of these plain formats, and that of x's */
} task;

/* n numbers of row i of x from number k0 on, or of row i of w, as operands of the product: n is at most PANEL_K where they are
   rounded. */
typedef void load_fn(const task *t, int64_t i, int64_t k0, int64_t n, int dtype, uint8_t *to);
static void load_x(const task *t, int64_t i, int64_t k0, int64_t n, int dtype, uint8_t *to) {
    t->kernels->to_float[t->plain][dtype](t->a->x.data + (i * t->a->k + k0) * cbq_formats[t->plain].bytes, to, n);
}
static void load_w(const task *t, int64_t j, int64_t k0, int64_t n, int dtype, uint8_t *to) { cbq_weights_to_float(t->a, j, k0, n, dtype, to); }

static void as_operands(const task *t, load_fn *load, int64_t i, int64_t k0, int64_t n, uint8_t *to) {
    if (!t->round) {
        load(t, i, k0, n, t->bytes == 4 ? CBQ_F32 : CBQ_BF16, to);
        return;
    }
    uint8_t rounded[2 * PANEL_K];
    load(t, i, k0, n, CBQ_BF16, rounded);
    t->kernels->to_float[t->bf16][CBQ_F32](rounded, to, n);
}

/* Rows of x, zero-padded. */
static void convert_rows(void *context, int64_t begin, int64_t end) {
    const task *t = context;
    const cbq_matmul_args *a = t->a;
    const int64_t used = a->k * t->bytes;
    for (int64_t i = begin; i < end; i++) {
        uint8_t *to = t->x + i * t->x_stride;
        for (int64_t k0 = 0; k0 < a->k; k0 += PANEL_K) as_operands(t, load_x, i, k0, a->k - k0 < PANEL_K ? a->k - k0 : PANEL_K, to + k0 * t->bytes);
        memset(to + used, 0, (size_t)(t->x_stride - used));
    }
}

/* ---- few rows of x: decode and multiply in one pass ---- */

static void dot_range(void *context, int64_t begin, int64_t end) {
    const task *t = context;
    const cbq_matmul_args *a = t->a;
    const float *x = (const float *)(const void *)t->x;
    for (int64_t j = begin; j < end; j += DOT_ROWS) {
        const int64_t rows = end - j < DOT_ROWS ? end - j : DOT_ROWS;
        float y[CBQ_DOT_M][DOT_ROWS], part[CBQ_DOT_M];
        for (int64_t k0 = 0; k0 < a->k; k0 += t->k_step)
            for (int64_t r = 0; r < rows; r++) {
                cbq_weights_dot(a, j + r, k0, a->k - k0 < t->k_step ? a->k - k0 : t->k_step, x + k0, t->x_stride / 4, part);
                for (int64_t i = 0; i < a->m; i++) y[i][r] = k0 ? y[i][r] + part[i] : part[i];
            }
        for (int64_t i = 0; i < a->m; i++) cbq_put_row(a, t->f32, y[i], i, j, rows);
    }
}

/* ---- many rows of x: decode a panel, then multiply ---- */

/* Elements k0 .. k0 + n - 1 of `rows` rows of w from j on, each followed by zeros up to a whole vector. Meanwhile the same
   part of the rows after them is asked for. */
static void decode_panel(const task *t, int64_t j, int64_t rows, int64_t k0, int64_t n, uint8_t *panel) {
    const uintptr_t here = cbq_weight_address(t->a, j, k0), part = cbq_weight_address(t->a, j, k0 + n) - here;
    uintptr_t next = cbq_weight_address(t->a, j + rows, 0) + (uintptr_t)rows * (here - cbq_weight_address(t->a, j, 0));
    for (int64_t r = 0; r < rows; r++, next += part) {
        cbq_prefetch(next, (int64_t)part);
        uint8_t *to = panel + r * t->panel_stride;
        as_operands(t, load_w, j + r, k0, n, to);
        memset(to + n * t->bytes, 0, (size_t)(cbq_rounded_up(n * t->bytes, PAD) - n * t->bytes));
    }
}

static void multiply_panel(const task *t, int64_t begin, int64_t rows, uint8_t *panel) {
    const cbq_matmul_args *a = t->a;
    uint8_t *sums = panel + PANEL_ROWS * t->panel_stride;
    const int direct = a->out_dtype == CBQ_F32;
    float *y = direct ? (float *)(void *)a->out.data + begin : (float *)(void *)sums;
    for (int64_t k0 = 0; k0 < a->k; k0 += t->k_step) {
        int64_t n = a->k - k0 < t->k_step ? a->k - k0 : t->k_step;
        decode_panel(t, begin, rows, k0, n, panel);
        for (int64_t i = 0; i < a->m; i += X_ROWS) {
            cbq_tile_args tile = {.x = t->x + i * t->x_stride + k0 * t->bytes, .w = panel, .y_stride = direct ? a->n : PANEL_ROWS,
                                  .x_stride = t->x_stride, .w_stride = t->panel_stride, .m = a->m - i < X_ROWS ? a->m - i : X_ROWS,
                                  .n = rows, .bytes = cbq_rounded_up(n * t->bytes, PAD), .add = k0 > 0};
            tile.y = y + i * tile.y_stride;
            t->tile(&tile);
        }
    }
    for (int64_t i = 0; !direct && i < a->m; i++) cbq_put_row(a, t->f32, y + i * PANEL_ROWS, i, begin, rows);
}

static void panel_range(void *context, int64_t begin, int64_t end) {
    const task *t = context;
    uint8_t *panel = cbq_scratch_take(t->scratch);
    for (int64_t j = begin; j < end; j += PANEL_ROWS) multiply_panel(t, j, end - j < PANEL_ROWS ? end - j : PANEL_ROWS, panel);
    cbq_scratch_give(t->scratch, panel);
}

cbq_code cbq_matmul_float(const cbq_matmul_args *a, int threads, cbq_status *st) {
    const int unit = cbq_weight_unit(a);
    const int f32 = a->precision == CBQ_PRECISION_F32, native = f32 || a->level->tile_bf16;
    cbq_scratch scratch;
    task t = {.a = a, .kernels = a->level->kernels, .scratch = &scratch,
              .tile = f32 || !native ? a->level->kernels->tile_f32 : a->level->tile_bf16, .bytes = f32 || !native ? 4 : 2, .round = !native,
              .f32 = cbq_plain_format(CBQ_F32), .bf16 = cbq_plain_format(CBQ_BF16), .plain = cbq_plain_format(a->dtype)};
    t.k_step = PANEL_BYTES / t.bytes / unit * unit;
    t.panel_stride = PANEL_BYTES + PAD;
    t.x_stride = cbq_rounded_up(a->k * t.bytes, PAD) + PAD;
    if (a->m > PTRDIFF_MAX / t.x_stride || !(t.x = cbq_aligned_alloc(a->m * t.x_stride)))
        return cbq_fail(st, CBQ_NO_MEMORY, "no memory for a copy of x: %lld rows of %lld bytes", (long long)a->m, (long long)t.x_stride);
    cbq_parallel(a->m, X_PIECE / a->k + 1, threads, convert_rows, &t);
    if (a->m <= cbq_one_pass_rows(a->precision, NULL, a->level) && cbq_weights_have_dot(a)) {
        t.k_step = t.kernels->dot_x_bytes ? t.kernels->dot_x_bytes / 4 / a->m / DOT_UNIT * DOT_UNIT : a->k;
        cbq_parallel(a->n, cbq_rounded_up(DOT_ELEMENTS / (a->k + 1) + 1, DOT_ROWS), threads, dot_range, &t);
    } else {
        int64_t sums = a->out_dtype == CBQ_F32 ? 0 : a->m * PANEL_ROWS * 4;
        const int slots = cbq_most_pieces(a->n, PANEL_ROWS, threads);
        if (!cbq_scratch_open(&scratch, slots, PANEL_ROWS * t.panel_stride + sums, st)) cbq_parallel(a->n, PANEL_ROWS, threads, panel_range, &t);
        cbq_scratch_close(&scratch);
    }
    free(t.x);
    return st->code;
}
