/* A format as its consumers see it: a constant struct of functions and numbers, made from the format's row. Consumers
   take it by value in a force-inlined function, so that nothing of it is left at run time. */
#pragma once
#include "doors.h"

enum { CBQ_LINEAR, CBQ_CODEBOOK, CBQ_SIGNED };

typedef struct {
    W (*codes)(const uint8_t *b, uint32_t r, uint32_t o);
    float (*d)(const uint8_t *b), (*dmin)(const uint8_t *b);
    uint32_t (*s4)(const uint8_t *b, uint32_t k), (*m4)(const uint8_t *b, uint32_t k);
    float (*s)(const uint8_t *b, uint32_t g);
    int elements, bytes, group;
    int kind;           /* CBQ_LINEAR .. */
    int scales, min;    /* CBQ_ONE .., CBQ_NOMIN .. */
    int offset;         /* value = code - offset */
    const float *table; /* or NULL: the codes are their own values */
    /* As integers: value * multiple + bias is an unsigned code of so many bits. */
    int multiple, bias, bits;
} cbq_decoder;

/* The kinds, as designated fields. Small unsigned codes have a table too: a ramp that begins at -offset. */
#define LINEAR(o, n) .kind = CBQ_LINEAR, .offset = o, .table = CBQ_LINEAR_BY_TABLE && n <= 4 ? cbq_ramp + 8 - o : 0, .multiple = 1, .bias = o, .bits = n
#define TABLE(values, times, n) .kind = CBQ_CODEBOOK, .offset = 0, .table = values, .multiple = times, .bias = CBQ_BIAS(n), .bits = n
#define SIGNED(n) .kind = CBQ_SIGNED, .offset = 0, .table = 0, .multiple = 1, .bias = CBQ_BIAS(n), .bits = n
CBQ_TABLE float cbq_ramp[24] = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

/* What the consumers rely on: whole runs, groups of whole vectors, and 8 or 16 group scales a block. */
#define CBQ_CHECK_ROW(f, n, grp, scl) \
    CBQ_STATIC_ASSERT((n) % 32 == 0, #f ": elements are a multiple of 32"); \
    CBQ_STATIC_ASSERT((grp) % 16 == 0 && (n) % (grp) == 0, #f ": a group is a multiple of 16 that divides the elements"); \
    CBQ_STATIC_ASSERT(CBQ_##scl != CBQ_ONE || (grp) == (n), #f ": one scale is one group"); \
    CBQ_STATIC_ASSERT(CBQ_##scl != CBQ_GROUPS || (n) / (grp) == 8 || (n) / (grp) == 16, #f ": 8 or 16 groups"); \
    CBQ_STATIC_ASSERT((n) / (grp) <= 16, #f ": at most 16 groups");

#define CBQ_DEFINE_DECODER(f, tag, n, size, grp, kind, scl, mn, imatrix, doc) \
    CBQ_CHECK_ROW(f, n, grp, scl) \
    CBQ_DOORS(f, size, scl, mn) \
    static const cbq_decoder f##_decoder = {f##_codes, f##_d, f##_dmin, f##_s4, f##_m4, f##_s, .elements = n, .bytes = size, .group = grp, .scales = CBQ_##scl, .min = CBQ_##mn, kind};

#include "cbq_format_list.h"
CBQ_FORMATS(CBQ_DEFINE_DECODER, CBQ_NOTHING)

#include "bytes_block.h"
CBQ_DEFINE_DECODER(plane_bytes16, none, 32, CBQ_PLANE_BYTES16_SIZE, 16, SIGNED(8), FLOATS, NOMIN, 0, "")
CBQ_DEFINE_DECODER(plane_bytes32, none, 32, CBQ_PLANE_BYTES32_SIZE, 32, SIGNED(8), ONE, NOMIN, 0, "")
