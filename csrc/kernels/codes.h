/* The codes of a block as unsigned integers, for products of integers: code = value * multiple + bias. */
#pragma once
#include "../dot/panel_shape.h"
#include "values.h"

/* The values of a codebook as biased codes. */
CBQ_FN void biased_table(cbq_decoder f, uint8_t codes[16]) {
    for (int i = 0; i < 16; i++) codes[i] = (uint8_t)((int)(f.table[i] * (float)f.multiple) + f.bias);
}

/* The scales of the codes: one, or one for each group. */
CBQ_FN void code_scales(const uint8_t *b, cbq_decoder f, float *s) {
    const float unit = 1.0f / (float)f.multiple;
    if (f.scales == CBQ_ONE) s[0] = f.d(b) * unit;
    else group_scales(b, f, CBQ_F32, unit, s);
}

CBQ_FN W biased(W codes, cbq_decoder f, const uint8_t table[16]) {
    if (f.kind == CBQ_CODEBOOK) return w_lookup(codes, table);
    return f.kind == CBQ_SIGNED ? w_addall(codes, f.bias) : codes;
}
