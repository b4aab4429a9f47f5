// A format as device code sees it: a struct of static functions and numbers, made from the format's row. The headers are
// those of the CPU, with the scalar words of four codes.
#pragma once
#include "word/scalar.h"

#include "kernels/doors.h"

#include "cbq_format_list.h"
#include "plane_blocks.cuh"

// The kinds, as members. Codes are unsigned bytes of `bits` bits after adding `bias` (in decode_products.cuh: a table's values
// times `multiple` are integers of so many bits). A book is a table of any floats.
#define CODES(o, table, own, sign, times, n, f8, last) \
    enum { offset = o, has_table = table, has_book = own, is_signed = sign, multiple = times, bits = n, float8 = f8, finish = last };
#define NO_TABLE CBQ_FN constexpr float entry(int) { return 0; }
#define TABLE_OF(values) CBQ_FN float entry(int i) { return values[i]; }

#define LINEAR(o, n) CODES(o, 0, 0, 0, 1, n, 0, SCALED) NO_TABLE
#define TABLE(values, times, n) CODES(0, 1, 0, 0, times, n, 0, SCALED) TABLE_OF(values)
#define SIGNED(n) CODES(0, 0, 0, 1, 1, n, 0, SCALED) NO_TABLE
#define FLOAT8(kind) CODES(0, 0, 0, 0, 1, 8, kind, SCALED) NO_TABLE
#define BOOK(values) CODES(0, 0, 1, 0, 1, 4, 0, SCALED) TABLE_OF(values)
#define TABLE_TIMES(values, times, n) CODES(0, 1, 0, 0, times, n, 0, TIMES) TABLE_OF(values)
#define TABLE_OVER(values, times, n) CODES(0, 1, 0, 0, times, n, 0, OVER) TABLE_OF(values)

// A value is code times scale; then times, or over, the tensor's number.
enum { SCALED, TIMES, OVER };

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
