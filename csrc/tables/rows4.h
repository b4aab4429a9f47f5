/* How the rows of a grid of four magnitudes, one byte each, become a table: as dwords, or each byte of all rows by itself, for
   instruction sets that look bytes up (CBQ_ROWS_BY_BYTES). */
#pragma once
#include "../base.h"

#define CBQ_ROW(row) row,
#define CBQ_BYTE0(row) (row) & 255,
#define CBQ_BYTE1(row) (row) >> 8 & 255,
#define CBQ_BYTE2(row) (row) >> 16 & 255,
#define CBQ_BYTE3(row) (row) >> 24,

#if defined(CBQ_ROWS_BY_BYTES)
#define CBQ_GRID_BYTES(name, n, ROWS) CBQ_TABLE uint8_t name##_bytes[4][n] = {{ROWS(CBQ_BYTE0)}, {ROWS(CBQ_BYTE1)}, {ROWS(CBQ_BYTE2)}, {ROWS(CBQ_BYTE3)}};
#else
#define CBQ_GRID_BYTES(name, n, ROWS)
#endif
#define CBQ_GRID4(name, n, ROWS) \
    CBQ_TABLE uint32_t name[n] = {ROWS(CBQ_ROW)}; \
    CBQ_GRID_BYTES(name, n, ROWS)
