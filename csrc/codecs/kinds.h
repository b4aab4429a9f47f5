/* The kinds of codes: one row each, the only list of them. Everything that knows a kind by name is made of these rows.

   A floating-point code is, from the top, a sign bit, `exponent` bits and `mantissa` bits: 2^(e - bias) * 1.m, and where e is 0
   the subnormal 2^(1 - bias) * 0.m. Kinds differ in what their top codes mean. Sources: OCP Microscaling Formats (MX) 1.0 for
   e2m1, e2m3, e3m2, mxint8 and e8m0; OCP 8-bit Floating Point (OFP8) 1.0 for e4m3fn ("E4M3") and e5m2; Noune et al. 2022,
   "8-bit Numerical Formats for Deep Neural Networks" for the fnuz kinds. */
#pragma once
#include "../base.h"

/* What the top codes are. */
enum {
    CBQ_TOP_FINITE, /* numbers: there is no infinity and no NaN */
    CBQ_TOP_ONES,   /* all ones but the sign is NaN, and there is no infinity */
    CBQ_TOP_IEEE,   /* the largest exponent is infinity and NaN, as in IEEE 754 */
    CBQ_TOP_FNUZ,   /* numbers, and what would be -0 is the one NaN */
    CBQ_TOP_FIXED,  /* no floating-point code: two's complement, code / 2^mantissa (`exponent` bits before the point) */
    CBQ_TOP_SCALE   /* an exponent alone: 2^(code - bias), 255 is NaN */
};

typedef struct { int exponent, mantissa, bias, top; } cbq_code_kind;

/* ROW(name, exponent, mantissa, bias, top) */
#define CBQ_CODE_KINDS(ROW) \
    ROW(e2m1, 2, 1, 1, FINITE) \
    ROW(e2m3, 2, 3, 1, FINITE) \
    ROW(e3m2, 3, 2, 3, FINITE) \
    ROW(e4m3fn, 4, 3, 7, ONES) \
    ROW(e4m3fnuz, 4, 3, 8, FNUZ) \
    ROW(e5m2, 5, 2, 15, IEEE) \
    ROW(e5m2fnuz, 5, 2, 16, FNUZ) \
    ROW(mxint8, 1, 6, 0, FIXED) \
    ROW(e8m0, 8, 0, 127, SCALE)

#define CBQ_KIND_INDEX(name, ...) CBQ_CODES_##name,
enum { CBQ_CODE_KINDS(CBQ_KIND_INDEX) CBQ_N_CODE_KINDS };

/* Bits of a code, and the bit of its sign. */
CBQ_FN int cbq_code_bits(cbq_code_kind k) { return k.exponent + k.mantissa + (k.top != CBQ_TOP_SCALE); }
CBQ_FN int cbq_code_sign(cbq_code_kind k) { return 1 << (k.exponent + k.mantissa); }

/* The code of the largest finite magnitude. */
CBQ_FN int cbq_code_largest(cbq_code_kind k) {
    int all_ones = cbq_code_sign(k) - 1;
    if (k.top == CBQ_TOP_IEEE) return (all_ones >> k.mantissa << k.mantissa) - 1;
    return k.top == CBQ_TOP_ONES || k.top == CBQ_TOP_SCALE ? all_ones - 1 : all_ones;
}

/* Stored one to a byte, or one after the other from the lowest bit up: a block is then the least whole number of bytes. */
enum { CBQ_UNPACKED, CBQ_PACKED };
CBQ_FN int cbq_codes_of_block(cbq_code_kind k, int packed) {
    const int bits = cbq_code_bits(k);
    return !packed || bits == 8 ? 1 : bits == 4 ? 2 : 4;
}
CBQ_FN int cbq_block_bytes(cbq_code_kind k, int packed) { return packed ? cbq_codes_of_block(k, packed) * cbq_code_bits(k) / 8 : 1; }
