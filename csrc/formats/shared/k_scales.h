/* The 12 bytes of eight 6-bit scales s and minimums m that q4_k and q5_k share; k = 0..3:
     byte k:      bits 5..0 are s[k], bits 7..6 the high 2 bits of s[k + 4]
     byte 4 + k:  bits 5..0 are m[k], bits 7..6 the high 2 bits of m[k + 4]
     byte 8 + k:  bits 3..0 are the low 4 bits of s[k + 4], bits 7..4 those of m[k + 4]
   Four at once: half 0 gives s (m) 0..3, half 1 gives 4..7. */
#pragma once

CBQ_FN uint32_t cbq_k_scale4(const uint8_t *p, uint32_t half) {
    uint32_t own = cbq_u32(p, 4);
    return half == 0 ? own & CBQ_B(63) : (cbq_u32(p + 8, 4) & CBQ_B(15)) | (own >> 2 & CBQ_B(48));
}
CBQ_FN uint32_t cbq_k_min4(const uint8_t *p, uint32_t half) {
    uint32_t own = cbq_u32(p + 4, 4);
    return half == 0 ? own & CBQ_B(63) : (cbq_u32(p + 8, 4) >> 4 & CBQ_B(15)) | (own >> 2 & CBQ_B(48));
}

CBQ_FN void cbq_k_pack_scales(uint8_t to[12], const uint8_t s[8], const uint8_t m[8]) {
    for (int k = 0; k < 4; k++) {
        to[k] = (uint8_t)(s[k] | s[k + 4] >> 4 << 6);
        to[k + 4] = (uint8_t)(m[k] | m[k + 4] >> 4 << 6);
        to[k + 8] = (uint8_t)((s[k + 4] & 15) | m[k + 4] << 4);
    }
}
