/* The codebooks of planes: values by code, and the codes by rising value, which is what encoding counts through. */
#pragma once
#include "../base.h"

/* Quantiles of the normal distribution, from -1 to 1: NormalFloat4 of Dettmers et al. 2023, "QLoRA", appendix E. */
CBQ_TABLE float cbq_nf4_values[16] = {
    -1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f, -0.28444138169288635f, -0.18477343022823334f,
    -0.09105003625154495f, 0.0f, 0.07958029955625534f, 0.16093020141124725f, 0.24611230194568634f, 0.33791524171829224f,
    0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, 1.0f};
CBQ_TABLE uint8_t cbq_nf4_order[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

/* The fp4 of bitsandbytes, which is not E2M1: a sign, and magnitudes in an order of its own. */
CBQ_TABLE float cbq_fp4_values[16] = {
    0.0f, 0.005208333333f, 0.66666667f, 1.0f, 0.33333333f, 0.5f, 0.16666667f, 0.25f,
    -0.0f, -0.005208333333f, -0.66666667f, -1.0f, -0.33333333f, -0.5f, -0.16666667f, -0.25f};
CBQ_TABLE uint8_t cbq_fp4_order[16] = {11, 10, 13, 12, 15, 14, 9, 8, 0, 1, 6, 7, 4, 5, 2, 3};
