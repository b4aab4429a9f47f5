/* Codes of four bits to bytes: n bytes, the first n codes in their low nibbles, the next n in the high ones. */
#pragma once
CBQ_FN void cbq_pack_nibbles(uint8_t *to, const uint8_t *codes, int n) {
    for (int i = 0; i < n; i++) to[i] = (uint8_t)((codes[i] & 15) | codes[n + i] << 4);
}
