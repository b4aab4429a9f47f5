/* Rows in pieces of CBQ_W elements, which is what one f_store takes. The last piece of a row may be shorter: it goes through memory
   of its own, so that each element is computed in the same way wherever a row is cut. */
#pragma once
#include "../array.h"
#include "../lanes/common.h"
#include "operators.h"

/* The type of a row: one of three constants, or what the arguments say. */
CBQ_FN int type_of(int mix, int dtype) { return mix == CBQ_MIXED ? dtype : mix; }

/* n elements from number i on, zeros beyond them. */
CBQ_FN void load_piece(const uint8_t *row, int64_t i, int64_t n, int dtype, F v[CBQ_VECTORS]) {
    const int size = cbq_float_bytes(dtype);
    const uint8_t *p = row + i * size;
    uint8_t last[CBQ_W * 4] = {0};
    if (n < CBQ_W) p = memcpy(last, p, (size_t)(n * size));
    CBQ_UNROLL_ALL
    for (int k = 0; k < CBQ_VECTORS; k++) v[k] = f_ld_as(p + k * CBQ_LANES * size, dtype);
}
CBQ_FN void store_piece(uint8_t *row, int64_t i, int64_t n, int dtype, int past, const F v[CBQ_VECTORS]) {
    const int size = cbq_float_bytes(dtype);
    uint8_t last[CBQ_W * 4], *p = row + i * size;
    if (n >= CBQ_W) {
        if (past) f_store_past(p, v, dtype);
        else f_store(p, v, dtype);
        return;
    }
    f_store(last, v, dtype);
    memcpy(p, last, (size_t)(n * size));
}

/* One function for each mixture. */
#define CBQ_EACH_MIX(FUNCTION) FUNCTION(F32, f32) FUNCTION(F16, f16) FUNCTION(BF16, bf16) FUNCTION(MIXED, mixed)
#define CBQ_MIX_ROW(name) {name##_f32, name##_f16, name##_bf16, name##_mixed}
