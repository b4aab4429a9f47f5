// A format as device code sees it: a struct of static functions and numbers, made from the format's row. The headers are
// those of the CPU, with the scalar words of four codes.
#pragma once
#include "word/scalar.h"

#include "kernels/doors.h"

#include "cbq_format_list.h"
#include "plane_blocks.cuh"

// The kinds, as members. Codes are unsigned bytes of `bits` bits after adding `bias` (in decode_products.cuh: a table's values
// times `multiple` are integers of so many bits).
#define LINEAR(o, n) \
    enum { offset = o, has_table = 0, is_signed = 0, multiple = 1, bits = n, float8 = 0 }; \
    CBQ_FN constexpr float entry(int) { return 0; }
#define TABLE(values, times, n) \
    enum { offset = 0, has_table = 1, is_signed = 0, multiple = times, bits = n, float8 = 0 }; \
    CBQ_FN float entry(int i) { return values[i]; }
#define SIGNED(n) \
    enum { offset = 0, has_table = 0, is_signed = 1, multiple = 1, bits = n, float8 = 0 }; \
    CBQ_FN constexpr float entry(int) { return 0; }

#define FLOAT8(kind) \
    enum { offset = 0, has_table = 0, is_signed = 0, multiple = 1, bits = 8, float8 = kind }; \
    CBQ_FN constexpr float entry(int) { return 0; }

#define CBQ_TRAITS(f, format_tag, n, size, grp, kind, scl, mn, imatrix, doc) \
    CBQ_DOORS(f, size, scl, mn) \
    struct f##_traits { \
        enum { tag = format_tag, elements = n, bytes = size, group = grp, scales = CBQ_##scl, min = CBQ_##mn }; \
        kind \
        CBQ_FN W codes(const uint8_t *b, uint32_t r, uint32_t o) { return f##_codes(b, r, o); } \
        CBQ_FN float d(const uint8_t *b) { return f##_d(b); } \
        CBQ_FN float dmin(const uint8_t *b) { return f##_dmin(b); } \
        CBQ_FN uint32_t s4(const uint8_t *b, uint32_t k) { return f##_s4(b, k); } \
        CBQ_FN uint32_t m4(const uint8_t *b, uint32_t k) { return f##_m4(b, k); } \
        CBQ_FN float s(const uint8_t *b, uint32_t g) { return f##_s(b, g); } \
    };

CBQ_FORMATS(CBQ_TRAITS, CBQ_NOTHING)
CBQ_PLANE_BLOCKS(CBQ_TRAITS)
