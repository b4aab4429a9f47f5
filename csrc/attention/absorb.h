/* A vector times a matrix whose rows are float32, float16 or bfloat16: a query of MLA and the up-projection that it absorbs. */
#pragma once
#include "few.h"
#include "panel.h"

/* o = sum over i < n of weights[i] * row i. */
static void weighted_rows(const float *weights, int64_t n, const cbq_rows *of, float *o, float *scratch) {
    static const float one = 1;
    const uint8_t *rows[CBQ_STEP];
    memset(o, 0, (size_t)cbq_padded_o(of->width) * 4);
    for (int64_t i = 0; i < n; i += CBQ_STEP) {
        const int64_t some = n - i < CBQ_STEP ? n - i : CBQ_STEP;
        for (int64_t j = 0; j < some; j++) rows[j] = of->data + (i + j) * of->stride;
        if (of->width % CBQ_LANES == 0) {
            few_values(weights + i, &one, 1, rows, some, of, (rows_ahead){0}, o, 0);
        } else {
            rows_to_values(rows, some, of, (rows_ahead){0}, scratch);
            panel_values(weights + i, &one, 1, scratch, some, of->width, o, 0);
        }
    }
}
