/* The groups of 16 elements of iq2_xs and iq2_s: two rows of the grid and a scale each. */
#pragma once
#include "iq2_search.h"

CBQ_FN void iq2_fit_group(const cbq_neighbours *t, const weighted *b, int group, float largest, iq2_groups *to) {
    const int at = 16 * group;
    float scale = largest / 5;
    uint16_t words[2] = {0, 0};
    uint32_t off_grid = iq2_search(t, b, at, 2, 9, largest, words, &scale);
    if (off_grid && scale > 0) {
        for (int k = 0; k < 2; k++)
            if (off_grid >> k & 1) words[k] = (uint16_t)iq2_word_at(t, scale, b->x + at + 8 * k, b->root + at + 8 * k);
        scale = iq2_fitted_scale(words, 2, b->w + at, b->wx + at, scale);
    }
    iq2_keep_group(t, b, group, 2, words, scale, to);
}

/* Groups whose largest magnitude is less than `least` are all zeros. */
CBQ_FN void iq2_fit_groups(const cbq_neighbours *t, const weighted *b, float least, iq2_groups *to) {
    memset(to, 0, sizeof *to);
    for (int group = 0; group < 16; group++) {
        float of_group = largest(b->x + 16 * group, 16);
        if (of_group < least) continue;
        iq2_fit_group(t, b, group, of_group, to);
    }
}
