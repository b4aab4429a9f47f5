/* A format's functions under untyped, uniform names: q4_k_codes(bytes, r, o), q4_k_d(bytes), .. What a format does not
   have (by the words of its row) reads as zero and is never called. For C and CUDA. */
#pragma once
#include "../base.h"

enum { CBQ_ONE, CBQ_GROUPS, CBQ_FLOATS };        /* the scales of a row */
enum { CBQ_NOMIN, CBQ_MIN_ONE, CBQ_MIN_GROUPS }; /* and its minimums */

/* Blocks are structs of bytes: any address will do. */
#define CBQ_AT(f, p) ((const cbq_##f##_block *)(p))

#define CBQ_D_ONE(f, p) cbq_##f##_d(CBQ_AT(f, p))
#define CBQ_D_GROUPS(f, p) cbq_##f##_d(CBQ_AT(f, p))
#define CBQ_D_FLOATS(f, p) ((void)p, 0.0f)
#define CBQ_S4_ONE(f, p, k) ((void)p, (void)k, 0u)
#define CBQ_S4_GROUPS(f, p, k) cbq_##f##_s4(CBQ_AT(f, p), k)
#define CBQ_S4_FLOATS(f, p, k) ((void)p, (void)k, 0u)
#define CBQ_S_ONE(f, p, g) ((void)p, (void)g, 0.0f)
#define CBQ_S_GROUPS(f, p, g) ((void)p, (void)g, 0.0f)
#define CBQ_S_FLOATS(f, p, g) cbq_##f##_s(CBQ_AT(f, p), g)
#define CBQ_DMIN_NOMIN(f, p) ((void)p, 0.0f)
#define CBQ_DMIN_MIN_ONE(f, p) cbq_##f##_dmin(CBQ_AT(f, p))
#define CBQ_DMIN_MIN_GROUPS(f, p) cbq_##f##_dmin(CBQ_AT(f, p))
#define CBQ_M4_NOMIN(f, p, k) ((void)p, (void)k, 0u)
#define CBQ_M4_MIN_ONE(f, p, k) ((void)p, (void)k, 0u)
#define CBQ_M4_MIN_GROUPS(f, p, k) cbq_##f##_m4(CBQ_AT(f, p), k)

#define CBQ_DOORS(f, size, scl, mn) \
    CBQ_STATIC_ASSERT(sizeof(cbq_##f##_block) == size, #f ": the row's bytes are not the struct's"); \
    CBQ_FN W f##_codes(const uint8_t *p, uint32_t r, uint32_t o) { return cbq_##f##_codes(CBQ_AT(f, p), r, o); } \
    CBQ_FN float f##_d(const uint8_t *p) { return CBQ_D_##scl(f, p); } \
    CBQ_FN float f##_dmin(const uint8_t *p) { return CBQ_DMIN_##mn(f, p); } \
    CBQ_FN uint32_t f##_s4(const uint8_t *p, uint32_t k) { return CBQ_S4_##scl(f, p, k); } \
    CBQ_FN uint32_t f##_m4(const uint8_t *p, uint32_t k) { return CBQ_M4_##mn(f, p, k); } \
    CBQ_FN float f##_s(const uint8_t *p, uint32_t g) { return CBQ_S_##scl(f, p, g); }
#define CBQ_NOTHING(...)
