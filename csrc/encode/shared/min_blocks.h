/* q4_1 and q5_1 with an importance matrix: a scale and a minimum for each block. */
#pragma once
#include "min_groups.h"
#include "weighted_rows.h"

CBQ_FN void fit_weighted_blocks(const cbq_encode_tile *t, float most, cbq_min_fit *fit) {
    float x[32 * CBQ_PAIR] __attribute__((aligned(64))), w[32 * CBQ_PAIR] __attribute__((aligned(64)));
    weighted_lanes(t, x, w);
    min_search(x, w, 32, most, (cbq_min_plan){-0.9f, 0.05f, 36, 0}, fit);
}
