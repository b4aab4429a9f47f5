/* The fifth bits of 32 codes: bit i is that of code i. */
#pragma once
CBQ_FN void cbq_pack_fifth_bits(uint8_t to[4], const uint8_t codes[32]) {
    uint32_t bits = 0;
    for (int i = 0; i < 32; i++) bits |= (uint32_t)(codes[i] >> 4 & 1) << i;
    memcpy(to, &bits, 4);
}
