/* Every encoder, and the table of their functions. Included by isa/encode/NAME.c after a file of word/ and one of lanes/. */
#pragma once
#include "encode.h"
#include "../lanes/common.h"
#include "cbq_format_list.h"
#include "cbq_encoder_list.h"

/* Exponent bits all ones. */
static int64_t find_nonfinite(const float *x, int64_t n) {
    const I exponent = i_set1(0x7f800000);
    int64_t i = 0;
    for (; i + CBQ_LANES <= n; i += CBQ_LANES)
        if (m_any(m_ieq(i_and(i_of_bits(f_ld(x + i)), exponent), exponent))) break;
    for (; i < n; i++)
        if ((cbq_as_u32(x[i]) & 0x7f800000u) == 0x7f800000u) return i;
    return -1;
}

#define CBQ_ENCODER_ROW(f, ...) CBQ_ENCODER_##f,
#define CBQ_ENCODER_TABLE {.encode = {CBQ_FORMATS(CBQ_ENCODER_ROW, CBQ_NO_ROW)}, .find_nonfinite = find_nonfinite}
