/* The codebook of iq4_nl and iq4_xs. Source: ggml (kvalues_iq4nl). */
#pragma once
CBQ_TABLE float cbq_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
