#include "matmul_int.h"

#include <stdlib.h>

#include "product.h"
#include "scratch.h"
#include "weights.h"

/* A piece of work is PIECE_ROWS rows of w (a multiple of every instruction set's panel), times all of x. PANEL_K elements of
   a panel's rows are decoded at a time: up to 16 KiB of codes and 4 of scales, for the first-level cache. Planes become blocks
   first, in pieces of DOT_K elements where there is one pass. */
enum { PANEL_K = 512, DOT_K = 2048, PIECE_ROWS = 64, MAX_PANEL_ROWS = 32, MIN_STEP = 16, X_PIECE = 1 << 16, PAD = 64,
       PLANES_BYTES = PANEL_K / 32 * CBQ_PLANE_BYTES16_SIZE };

/* x as integers, in one allocation: rows of q, scales, and for each step the sum of q and the start of a dot product. */
typedef struct {
    uint8_t *q;
    float *scales, *sums;
    int32_t *starts; /* for each step; in one pass for each four elements */
    int64_t stride, n_scales, n_steps, n_starts; /* of a row: bytes, scales, steps, starts */
} int_x;

typedef struct {
    const cbq_matmul_args *a;
    const cbq_format *f;
    const cbq_kernels *kernels;
    cbq_scratch *scratch;
    int_x x;
    int place, step, x_block, bias, x_bytes, plain_x, plain_f32; /* place: of its blocks in tables of kernels */
    int64_t row_bytes, y_stride; /* row_bytes: in memory, rounded down */
    int one_pass;
    atomic_int not_finite;
} task;

/* ---- x to integers ---- */

/* The sums and starts of a row, from the sums of its quads. */
static void sum_steps(const task *t, int64_t row, const int32_t *quads) {
    float *sums = t->x.sums + row * t->x.n_steps, *scales = t->x.scales + row * t->x.n_scales;
    int32_t *starts = t->x.starts + row * t->x.n_starts;
    const int in_step = t->step / 4;
    for (int64_t s = 0; s < t->x.n_steps; s++) {
        int32_t sum = 0;
        for (int i = 0; i < in_step; i++) sum += quads[s * in_step + i];
        sums[s] = (t->one_pass || t->x_block == 32 ? scales[s * t->step / t->x_block] : 1) * (float)sum;
        if (!t->one_pass) starts[s] = -t->bias * sum;
    }
    if (t->one_pass)
        for (int64_t s = 0; s < t->x.n_starts; s++) starts[s] = -t->bias * quads[s];
}

/* Each four 16-bit numbers in the order 0 2 1 3. */
static void interleave(uint8_t *q, int64_t n) {
    for (int64_t i = 0; i < n; i += 4) {
        int16_t v[4];
        memcpy(v, q + 2 * i, 8);
        int16_t one = v[1];
        v[1] = v[2];
        v[2] = one;
        memcpy(q + 2 * i, v, 8);
    }
}

static void quantize_rows(void *context, int64_t begin, int64_t end) {
    task *t = context;
    const cbq_matmul_args *a = t->a;
    cbq_quantize_x_fn *quantize = t->x_bytes == 1 ? t->kernels->quantize_q8 : t->kernels->quantize_q16;
    uint8_t *floats = cbq_scratch_take(t->scratch);
    int32_t *quads = (int32_t *)(void *)(floats + 4 * a->k);
    for (int64_t i = begin; i < end; i++) {
        const uint8_t *from = a->x.data + i * a->k * cbq_formats[t->plain_x].bytes;
        uint8_t *q = t->x.q + i * t->x.stride;
        t->kernels->to_float[t->plain_x][CBQ_F32](from, floats, a->k);
        if (cbq_has_pairs(a)) cbq_split_pairs((float *)(void *)floats, a->k);
        if (!quantize((const float *)(const void *)floats, a->k, t->x_block, q, t->x.scales + i * t->x.n_scales, quads)) {
            atomic_store(&t->not_finite, 1);
            break;
        }
        sum_steps(t, i, quads);
        if (t->x_bytes == 2) interleave(q, a->k);
    }
    cbq_scratch_give(t->scratch, floats);
}

/* ---- few rows of x: one pass over the weights ---- */

/* Rows j .. j + n - 1, and the first of them again where the instruction set takes more; nobody reads what becomes of that. */
static void dot_some_rows(const task *t, int64_t j, int64_t n, float *y) {
    const cbq_matmul_args *a = t->a;
    const int rows = a->level->ints->dot_rows;
    const int64_t step = a->planes ? DOT_K : a->k;
    const int64_t ahead = rows * t->row_bytes > CBQ_AHEAD ? rows * t->row_bytes : CBQ_AHEAD;
    uint8_t blocks[CBQ_MAX_DOT_ROWS][DOT_K / 32 * CBQ_PLANE_BYTES16_SIZE];
    float part[CBQ_DOT_Q8_M * CBQ_MAX_DOT_ROWS];
    memset(y, 0, sizeof *y * (size_t)(a->m * rows));
    for (int64_t k0 = 0; k0 < a->k; k0 += step) {
        const int64_t k = a->k - k0 < step ? a->k - k0 : step;
        const uint8_t *row[CBQ_MAX_DOT_ROWS];
        for (int r = 0; r < n; r++) row[r] = cbq_weight_blocks(a, j + r, k0, k, blocks[r]);
        for (int r = (int)n; r < rows; r++) row[r] = row[0];
        const cbq_int_dot_args x = {.x = (const int8_t *)t->x.q + k0, .quad_starts = t->x.starts + k0 / 4, .scaled_sums = t->x.sums + k0 / t->step,
                                    .scales = t->x.scales + k0 / t->x_block, .x_stride = t->x.stride, .quad_stride = t->x.n_starts,
                                    .step_stride = t->x.n_steps, .scale_stride = t->x.n_scales, .m = (int)a->m};
        a->level->ints->dot_q8[t->place](row, k / t->f->elements, cbq_weight_address(a, j, k0) + (uintptr_t)ahead, &x, part);
        for (int64_t i = 0; i < a->m * rows; i++) y[i] += part[i];
    }
}

static void dot_rows(void *context, int64_t begin, int64_t end) {
    const task *t = context;
    const cbq_matmul_args *a = t->a;
    const int rows = a->level->ints->dot_rows;
    for (int64_t j = begin; j < end; j += rows) {
        float y[CBQ_DOT_Q8_M * CBQ_MAX_DOT_ROWS], row_of_y[CBQ_MAX_DOT_ROWS];
        const int64_t n = end - j < rows ? end - j : rows;
        dot_some_rows(t, j, n, y);
        for (int64_t i = 0; i < a->m; i++) {
            memcpy(row_of_y, y + i * rows, sizeof *y * (size_t)n);
            cbq_put_row(a, t->plain_f32, row_of_y, i, j, n);
        }
    }
}

/* ---- many rows: panels ---- */

/* `blocks` has room for PANEL_K elements of MAX_PANEL_ROWS rows of planes. */
static void multiply_panel(const task *t, int64_t j, int64_t rows, cbq_panel panel, uint8_t *blocks, float *y) {
    const cbq_matmul_args *a = t->a;
    panel.next = cbq_weight_address(a, j + rows, 0);
    const uint8_t *row[MAX_PANEL_ROWS];
    for (int64_t k0 = 0; k0 < a->k; k0 += PANEL_K) {
        const int64_t n = a->k - k0 < PANEL_K ? a->k - k0 : PANEL_K;
        /* Lanes past the last row of w repeat it; nobody reads what becomes of them. */
        for (int lane = 0; lane < t->kernels->panel_rows; lane++)
            row[lane] = lane < rows ? cbq_weight_blocks(a, j + lane, k0, n, blocks + lane * PLANES_BYTES) : row[rows - 1];
        t->kernels->to_panel[t->place](row, n / t->f->elements, &panel);
        panel.next += (uintptr_t)(n / t->f->elements * t->f->bytes * t->kernels->panel_rows);
        const int_x *x = &t->x;
        cbq_int_args args = {.panel = panel, .x = x->q + k0 * t->x_bytes, .starts = x->starts + k0 / t->step, .sums = x->sums + k0 / t->step,
                             .scales = x->scales + k0 / t->x_block, .y = y, .x_stride = x->stride, .step_stride = x->n_steps,
                             .scale_stride = x->n_scales, .y_stride = t->y_stride, .m = a->m, .k = n, .step = t->step,
                             .x_block = t->x_block, .bits = t->f->bits, .has_min = t->f->has_min};
        if (t->x_bytes == 1) a->level->ints->q8(&args);
        else a->level->ints->q16(&args);
    }
}

static void multiply_rows(void *context, int64_t begin, int64_t end) {
    const task *t = context;
    const cbq_matmul_args *a = t->a;
    const int panel_rows = t->kernels->panel_rows;
    uint8_t *slot = cbq_scratch_take(t->scratch);
    cbq_panel panel = {.codes = slot};
    panel.scales = (float *)(void *)(panel.codes + PANEL_K * MAX_PANEL_ROWS);
    panel.mins = panel.scales + PANEL_K / MIN_STEP * MAX_PANEL_ROWS;
    float *y = panel.mins + PANEL_K / MIN_STEP * MAX_PANEL_ROWS;
    uint8_t *blocks = (uint8_t *)(y + a->m * t->y_stride);
    for (int64_t j0 = begin; j0 < end; j0 += PIECE_ROWS) {
        const int64_t rows = end - j0 < PIECE_ROWS ? end - j0 : PIECE_ROWS;
        memset(y, 0, (size_t)(a->m * t->y_stride) * 4);
        for (int64_t j = 0; j < rows; j += panel_rows) multiply_panel(t, j0 + j, rows - j < panel_rows ? rows - j : panel_rows, panel, blocks, y + j);
        for (int64_t i = 0; i < a->m; i++) cbq_put_row(a, t->plain_f32, y + i * t->y_stride, i, j0, rows);
    }
    cbq_scratch_give(t->scratch, slot);
}

static cbq_code run(task *t, int threads, cbq_status *st) {
    const cbq_matmul_args *a = t->a;
    const int64_t quantizing = 5 * a->k; /* floats and quads */
    const int64_t panel = PANEL_K * MAX_PANEL_ROWS + 2 * PANEL_K / MIN_STEP * MAX_PANEL_ROWS * 4, sums = a->m * t->y_stride * 4;
    const int64_t blocks = a->planes ? PLANES_BYTES * MAX_PANEL_ROWS : 0;
    const int64_t x_grain = X_PIECE / a->k + 1;
    /* Scratch memory one after the other: quantizing wants small slots, panels large ones and perhaps fewer. */
    if (cbq_scratch_open(t->scratch, cbq_most_pieces(a->m, x_grain, threads), quantizing, st)) return st->code;
    cbq_parallel(a->m, x_grain, threads, quantize_rows, t);
    cbq_scratch_close(t->scratch);
    if (atomic_load(&t->not_finite)) return cbq_fail(st, CBQ_BAD_VALUE, "x: expected finite numbers (precision q8 or q16), got NaN or infinity");
    if (t->one_pass) {
        cbq_parallel(a->n, cbq_rounded_up(x_grain, CBQ_MAX_DOT_ROWS), threads, dot_rows, t);
        return CBQ_OK;
    }
    if (cbq_scratch_open(t->scratch, cbq_most_pieces(a->n, PIECE_ROWS, threads), panel + sums + blocks, st)) return st->code;
    cbq_parallel(a->n, PIECE_ROWS, threads, multiply_rows, t);
    return CBQ_OK;
}

cbq_code cbq_matmul_int(const cbq_matmul_args *a, int threads, cbq_status *st) {
    const cbq_format *f = cbq_int_format(a);
    cbq_scratch scratch = {.memory = NULL};
    task t = {.a = a, .f = f, .kernels = a->level->kernels, .scratch = &scratch, .place = cbq_int_place(a), .step = cbq_step(f->group),
              .x_block = a->precision == CBQ_PRECISION_Q16 ? 256 : cbq_x_block(f->elements),
              .bias = a->precision == CBQ_PRECISION_Q8 && f->bits == 8 && a->level->ints->wide_is_signed ? 0 : f->bias,
              .x_bytes = a->precision == CBQ_PRECISION_Q8 ? 1 : 2, .plain_x = cbq_plain_format(a->dtype), .plain_f32 = cbq_plain_format(CBQ_F32),
              .row_bytes = (int64_t)(cbq_weight_address(a, 1, 0) - cbq_weight_address(a, 0, 0)), .y_stride = PIECE_ROWS};
    atomic_init(&t.not_finite, 0);
    t.one_pass = a->m <= cbq_one_pass_rows(a->precision, f, a->level);
    t.x.stride = cbq_rounded_up(a->k * t.x_bytes, 64) + 64;
    t.x.n_scales = cbq_rounded_up(a->k, t.x_block) / t.x_block;
    t.x.n_steps = a->k / t.step;
    t.x.n_starts = t.one_pass ? a->k / 4 : t.x.n_steps;
    const int64_t row = t.x.stride + 4 * (t.x.n_scales + t.x.n_steps + t.x.n_starts);
    t.x.q = a->m > PTRDIFF_MAX / row - 1 ? NULL : cbq_aligned_alloc(a->m * row + PAD);
    if (!t.x.q) return cbq_fail(st, CBQ_NO_MEMORY, "no memory for x in integers: %lld rows of %lld bytes", (long long)a->m, (long long)row);
    t.x.scales = (float *)(void *)(t.x.q + a->m * t.x.stride);
    t.x.starts = (int32_t *)(void *)(t.x.scales + a->m * t.x.n_scales);
    t.x.sums = (float *)(void *)(t.x.starts + a->m * t.x.n_starts);
    memset(t.x.sums + a->m * t.x.n_steps, 0, PAD);
    run(&t, threads, st);
    cbq_scratch_close(&scratch);
    free(t.x.q);
    return st->code;
}
