/* q4_k and q5_k: eight groups of 32 under 6-bit scales and minimums. */
#pragma once
#include "min_groups.h"

/* Of one format: what its superblocks are made of, and whether integers beyond 63 are cut off or spill over in the twelve bytes. */
typedef struct {
    float most;
    cbq_min_plan plain;
    int cut_off, bytes;
    void (*write)(uint8_t *block, const cbq_fields *fields);
} cbq_k_format;

/* The scales as a decoder will read them from the twelve bytes: larger ones than 63 spill over there, as in the reference. */
CBQ_FN void read_k_scales(const cbq_min_scales *scales, uint8_t s[8], uint8_t m[8]) {
    uint8_t packed[12];
    cbq_k_pack_scales(packed, scales->s, scales->m);
    for (uint32_t half = 0; half < 2; half++) {
        uint32_t s4 = cbq_k_scale4(packed, half), m4 = cbq_k_min4(packed, half);
        memcpy(s + 4 * half, &s4, 4);
        memcpy(m + 4 * half, &m4, 4);
    }
}

CBQ_FN void k_tile(const cbq_encode_tile *t, int weighted, cbq_k_format k) {
    const cbq_min_format f = {.size = 32, .most = k.most, .most_scale = 63, .plain = k.plain, .weighted = {-0.9f, 0.05f, 36, 0}, .sigma_factor = 2};
    cbq_min_fits fits;
    cbq_min_scales scales[CBQ_TILE_BLOCKS];
    cbq_fields fields;
    uint8_t s[8], m[8];
    fit_groups(t, f, weighted, &fits);
    fit_scales(&fits, f, weighted, scales);
    for (int b = 0; b < CBQ_TILE_BLOCKS; b++) {
        cbq_min_scales *own = &scales[b];
        for (int j = 0; j < 8 && k.cut_off; j++) {
            own->s[j] = own->s[j] > 63 ? 63 : own->s[j];
            own->m[j] = own->m[j] > 63 ? 63 : own->m[j];
        }
        read_k_scales(own, s, m);
        min_codes(t, b, f, &fits, own, s, m, fields.codes);
        memcpy(fields.s, own->s, 8);
        memcpy(fields.m, own->m, 8);
        fields.d = own->d, fields.dmin = own->dmin;
        k.write(t->out + k.bytes * b, &fields);
    }
}
