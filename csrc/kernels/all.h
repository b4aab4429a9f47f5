/* Every consumer, and the table of their functions. Included by isa/NAME.c after a file of word/. */
#pragma once
#include "dot_f32.h"
#include "kernels.h"
#include "panel.h"
#include "quantize_x.h"
#include "tile.h"
#include "to_float.h"

CBQ_FN F mac_f32(F x, F w, F sum) { return f_fma(x, w, sum); }
static void tile_f32(const cbq_tile_args *args) { tiles(args, mac_f32); }

#define CBQ_KERNEL_TABLE { \
    .to_float = {CBQ_FORMATS(CBQ_TO_FLOAT_ROW, CBQ_TO_FLOAT_ROW)}, \
    .dot_f32 = {CBQ_FORMATS(CBQ_DOT_ROW, CBQ_NO_ROW)}, \
    .dot_x_bytes = CBQ_DOT_X_BYTES, \
    .tile_f32 = tile_f32, \
    .to_panel = {CBQ_FORMATS(CBQ_PANEL_ROW, CBQ_NO_ROW)[CBQ_PLANE_BYTES16] = plane_bytes16_to_panel, plane_bytes32_to_panel}, .panel_rows = CBQ_PANEL_ROWS, \
    .quantize_q8 = quantize_q8, .quantize_q16 = quantize_q16, \
    .stream_copy = stream_copy, .stream_threads = CBQ_STREAM_THREADS, .stream_from = CBQ_STREAM_FROM}
