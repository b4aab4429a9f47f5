/* The sixteen groups of a superblock of iq2_xs and iq2_s. */
#pragma once
#include "iq2_fit.h"

typedef struct {
    uint16_t rows[32];
    uint8_t signs[32];
    float scales[16], largest_scale;
} iq2_groups;

/* Groups without a magnitude of `least` or more become zeros. */
CBQ_FN void iq2_fit_groups_of_16(const cbq_neighbours *t, const weighted *b, float least, iq2_groups *to) {
    for (int group = 0; group < 16; group += CBQ_LANES) {
        const F largest = largest_of_groups(b->x + 16 * group, 16);
        const iq2_fitted place = {to->rows + 2 * group, to->signs + 2 * group, to->scales + group};
        float reach[CBQ_LANES];
        f_st_f32(reach, largest);
        iq2_fit(t, b, 16 * group, (iq2_shape){.n = 16, .steps = 9, .refit = 0}, reach, f_div(largest, f_set1(5)),
                m_bits(m_not_lt(largest, f_set1(least))), place);
    }
    to->largest_scale = iq2_largest_scale(to->scales, 16);
}
