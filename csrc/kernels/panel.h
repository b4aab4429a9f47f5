/* Panels: the codes of CBQ_PANEL_ROWS rows as unsigned bytes, four neighbours of each row to a dword and the rows side by
   side, so that a vector or two hold four elements of every row; scales and mins likewise, a float a row. Products of integers know
   no format: they see a panel, and what its codes were biased with.

   value = scale * (code - bias) - min, a scale for each step of 16 or 32 elements */
#pragma once
#include "codes.h"
#include "kernels.h"

/* One row's codes, in natural order. */
CBQ_FN void biased_block(const uint8_t *b, cbq_decoder f, const uint8_t table[16], uint8_t *to) {
    W all[256 / CBQ_W];
    first_codes(b, f, all);
    CBQ_UNROLL
    for (int r = 0; r < f.elements / 32; r++) {
        CBQ_UNROLL
        for (int o = 0; o < 32; o += CBQ_W) w_store(biased(codes_at(b, f, all, r, o), f, table), to + 32 * r + o);
    }
}

/* One row's scales and mins, a float for each step, `stride` floats apart. */
CBQ_FN void step_scales(const uint8_t *b, cbq_decoder f, float *scales, float *mins) {
    float s[16] __attribute__((aligned(64))), m[16] __attribute__((aligned(64)));
    const int step = cbq_step(f.group);
    code_scales(b, f, s);
    if (f.min == CBQ_MIN_ONE) m[0] = f.dmin(b);
    if (f.min == CBQ_MIN_GROUPS) group_mins(b, f, CBQ_F32, m);
    for (int i = 0; i < f.elements / step; i++) {
        scales[i * CBQ_PANEL_ROWS] = s[i * step / f.group];
        if (f.min) mins[i * CBQ_PANEL_ROWS] = m[f.min == CBQ_MIN_ONE ? 0 : i * step / f.group];
    }
}

CBQ_FN void blocks_to_panel(const uint8_t *const *rows, int64_t n, const cbq_panel *panel, cbq_decoder f) {
    uint8_t tile[CBQ_PANEL_ROWS * 256] __attribute__((aligned(64))), table[16];
    uint8_t *codes = panel->codes;
    float *scales = panel->scales, *mins = panel->mins;
    uintptr_t next = panel->next;
    CBQ_STATIC_ASSERT(CBQ_LANES * 4 == sizeof(F), "a row's dword to a lane");
    if (f.kind == CBQ_CODEBOOK) biased_table(f, table);
    for (int64_t i = 0; i < n; i++) {
        for (int lane = 0; lane < CBQ_PANEL_ROWS; lane++) {
            const uint8_t *b = rows[lane] + i * f.bytes;
            cbq_prefetch(next, f.bytes);
            next += f.bytes;
            biased_block(b, f, table, tile + lane * f.elements);
            step_scales(b, f, scales + lane, mins + lane);
        }
        __asm__("" : "+m"(tile)); /* through memory: joining registers would take the port that the transposition needs */
        for (int r = 0; r < f.elements / 32; r++, codes += 32 * CBQ_PANEL_ROWS)
            for (int v = 0; v < CBQ_PANEL_VECTORS; v++)
                p_transpose(tile + v * CBQ_LANES * f.elements + 32 * r, f.elements, codes + 4 * v * CBQ_LANES);
        scales += f.elements / cbq_step(f.group) * CBQ_PANEL_ROWS;
        mins += f.elements / cbq_step(f.group) * CBQ_PANEL_ROWS;
    }
}

#define CBQ_PANEL_KERNEL(f, ...) \
    static void f##_to_panel(const uint8_t *const *rows, int64_t n, const cbq_panel *panel) { blocks_to_panel(rows, n, panel, f##_decoder); }
CBQ_FORMATS(CBQ_PANEL_KERNEL, CBQ_NOTHING)
CBQ_PANEL_KERNEL(plane_bytes16)
CBQ_PANEL_KERNEL(plane_bytes32)
#define CBQ_PANEL_ROW(f, ...) f##_to_panel,
