/* Codes of four bits to bytes: n bytes (a multiple of 8), the first n codes in their low nibbles, the next n in the high ones. */
#pragma once
CBQ_FN void cbq_pack_nibbles(uint8_t *to, const uint8_t *codes, int n) {
    for (int i = 0; i < n; i += 8) {
        uint64_t low, high;
        memcpy(&low, codes + i, 8);
        memcpy(&high, codes + n + i, 8);
        low = (low & 0x0f0f0f0f0f0f0f0fu) | (high << 4 & 0xf0f0f0f0f0f0f0f0u);
        memcpy(to + i, &low, 8);
    }
}

/* The fifth bits of 32 codes. */
CBQ_FN uint32_t cbq_fifth_bits(const uint8_t codes[32]) {
    uint32_t bits = 0;
    for (int i = 0; i < 32; i++) bits |= (uint32_t)(codes[i] >> 4 & 1) << i;
    return bits;
}
