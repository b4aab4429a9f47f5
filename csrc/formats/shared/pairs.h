/* Codes of two bits to 64 bytes: code 128 h + 32 j + l is bits 2j, 2j + 1 of byte 32 h + l. What codes have above two bits is
   left out. */
#pragma once
CBQ_FN void cbq_pack_pairs(uint8_t to[64], const uint8_t codes[256]) {
    for (int h = 0; h < 2; h++)
        for (int l = 0; l < 32; l++) {
            const uint8_t *c = codes + 128 * h + l;
            to[32 * h + l] = (uint8_t)((c[0] & 3) | (c[32] & 3) << 2 | (c[64] & 3) << 4 | c[96] << 6);
        }
}
