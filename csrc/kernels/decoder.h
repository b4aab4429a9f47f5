/* A format as its consumers see it: a constant struct of functions and numbers, made from the format's row. Consumers
   take it by value in a force-inlined function, so that nothing of it is left at run time. */
#pragma once
#include "../base.h"

enum { CBQ_ONE, CBQ_GROUPS, CBQ_FLOATS };
enum { CBQ_NOMIN, CBQ_MIN_ONE, CBQ_MIN_GROUPS };

typedef struct {
    W (*codes)(const uint8_t *b, uint32_t r, uint32_t o);
    float (*d)(const uint8_t *b), (*dmin)(const uint8_t *b);
    uint32_t (*s4)(const uint8_t *b, uint32_t k), (*m4)(const uint8_t *b, uint32_t k);
    float (*s)(const uint8_t *b, uint32_t g);
    int elements, bytes, group;
    int scales, min;    /* CBQ_ONE .., CBQ_NOMIN .. */
    int offset, bits;   /* value = code - offset; bits 8: signed codes */
    const float *table; /* or NULL */
} cbq_decoder;

/* The kinds, as designated fields. Small unsigned codes have a table too: a ramp that begins at -offset. */
#define LINEAR(o, n) .offset = o, .bits = n, .table = CBQ_LINEAR_BY_TABLE && n <= 4 ? cbq_ramp + 8 - o : 0
#define TABLE(values) .offset = 0, .bits = 4, .table = values
#define SIGNED .offset = 0, .bits = 8, .table = 0
CBQ_TABLE float cbq_ramp[24] = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

/* The functions that a row promises; what it does not have reads as nothing and is never called. */
#define CBQ_D_ONE(f, b) cbq_##f##_d(b)
#define CBQ_D_GROUPS(f, b) cbq_##f##_d(b)
#define CBQ_D_FLOATS(f, b) 0
#define CBQ_S4_ONE(f, b, k) 0
#define CBQ_S4_GROUPS(f, b, k) cbq_##f##_s4(b, k)
#define CBQ_S4_FLOATS(f, b, k) 0
#define CBQ_S_ONE(f, b, g) 0
#define CBQ_S_GROUPS(f, b, g) 0
#define CBQ_S_FLOATS(f, b, g) cbq_##f##_s(b, g)
#define CBQ_DMIN_NOMIN(f, b) 0
#define CBQ_DMIN_MIN_ONE(f, b) cbq_##f##_dmin(b)
#define CBQ_DMIN_MIN_GROUPS(f, b) cbq_##f##_dmin(b)
#define CBQ_M4_NOMIN(f, b, k) 0
#define CBQ_M4_MIN_ONE(f, b, k) 0
#define CBQ_M4_MIN_GROUPS(f, b, k) cbq_##f##_m4(b, k)

/* Untyped doors to a format's functions. Blocks are structs of bytes: any address will do. */
#define CBQ_DEFINE_DECODER(f, tag, n, size, grp, kind, scl, mn, imatrix, doc) \
    _Static_assert(sizeof(cbq_##f##_block) == size, #f ": the row's bytes are not the struct's"); \
    CBQ_FN W f##_codes(const uint8_t *b, uint32_t r, uint32_t o) { return cbq_##f##_codes((const cbq_##f##_block *)b, r, o); } \
    CBQ_FN float f##_d(const uint8_t *p) { const cbq_##f##_block *b = (const cbq_##f##_block *)p; (void)b; return CBQ_D_##scl(f, b); } \
    CBQ_FN float f##_dmin(const uint8_t *p) { const cbq_##f##_block *b = (const cbq_##f##_block *)p; (void)b; return CBQ_DMIN_##mn(f, b); } \
    CBQ_FN uint32_t f##_s4(const uint8_t *p, uint32_t k) { const cbq_##f##_block *b = (const cbq_##f##_block *)p; (void)b; (void)k; return CBQ_S4_##scl(f, b, k); } \
    CBQ_FN uint32_t f##_m4(const uint8_t *p, uint32_t k) { const cbq_##f##_block *b = (const cbq_##f##_block *)p; (void)b; (void)k; return CBQ_M4_##mn(f, b, k); } \
    CBQ_FN float f##_s(const uint8_t *p, uint32_t g) { const cbq_##f##_block *b = (const cbq_##f##_block *)p; (void)b; (void)g; return CBQ_S_##scl(f, b, g); } \
    static const cbq_decoder f##_decoder = {f##_codes, f##_d, f##_dmin, f##_s4, f##_m4, f##_s, n, size, grp, CBQ_##scl, CBQ_##mn, kind};
#define CBQ_NOTHING(...)
