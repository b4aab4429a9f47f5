/* Rows of four codes by loads, for the vocabularies that do not look bytes up. Included where W_U32 is known. */
#pragma once

CBQ_FN W w_rows4(const uint32_t *rows, const uint8_t *low, const uint8_t *high, uint32_t r, uint32_t o) {
    uint32_t ninth = high ? high[r] : 0;
    return W_U32(e, o, rows[low[8 * r + e] | (ninth << (8 - e) & 256)]);
}
#define W_ROWS4(grid, low, high, r, o) w_rows4(grid, low, high, r, o)
