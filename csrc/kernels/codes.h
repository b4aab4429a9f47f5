/* The codes of a block as unsigned integers, for products of integers: code = value * multiple + bias. */
#pragma once
#include "../dot/panel_shape.h"
#include "values.h"

/* The values of a codebook as biased codes. */
CBQ_FN void biased_table(cbq_decoder f, uint8_t codes[16]) {
    for (int i = 0; i < 16; i++) codes[i] = (uint8_t)((int)(f.table[i] * (float)f.multiple) + f.bias);
}

CBQ_FN W biased_codes(const uint8_t *b, cbq_decoder f, const uint8_t table[16], int r, int o) {
    W codes = f.codes(b, (uint32_t)r, (uint32_t)o);
    if (f.kind == CBQ_CODEBOOK) return w_lookup(codes, table);
    return f.kind == CBQ_SIGNED ? w_addall(codes, f.bias) : codes;
}
