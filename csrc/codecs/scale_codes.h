/* E8M0 scales of blocks from their largest magnitudes, by one of the rules in use. In float64's bits, where every float32 is a
   normal number; there are few scales beside the elements, so plain C is fast enough. */
#pragma once
#include "../encode/shared/mxfp4_scale.h"

enum {
    CBQ_SCALE_FLOOR, /* OCP MX 1.0: the exponent of the magnitude less emax, that of the element type's largest value */
    CBQ_SCALE_CEIL,  /* the least scale under which the magnitude is no more than `largest` */
    CBQ_SCALE_EVEN,  /* FLOOR of the magnitude rounded to `mbits` mantissa bits, ties to even */
    CBQ_SCALE_GGML   /* that of GGUF's mxfp4, from the magnitude as float32 */
};
enum { CBQ_SCALE_MAX_MBITS = 51, CBQ_SCALE_MAX_EMAX = 127 }; /* -127 .. 127 */

typedef struct {
    int rule, emax, mbits;
    double largest; /* 2^-126 and up, so that a subnormal float64 is below every scale */
} cbq_scale_rule;

CBQ_FN uint64_t cbq_as_u64(double d) { uint64_t u; memcpy(&u, &d, 8); return u; }

/* The sign of the magnitude does not matter. */
CBQ_FN uint8_t cbq_scale_code(double magnitude, const cbq_scale_rule *r) {
    const uint64_t infinity = UINT64_C(0x7ff) << 52, mantissa = (UINT64_C(1) << 52) - 1;
    uint64_t bits = cbq_as_u64(magnitude) & ~(UINT64_C(1) << 63), largest = cbq_as_u64(r->largest);
    if (bits >= infinity) return 255;
    int64_t less = r->emax;
    if (r->rule == CBQ_SCALE_EVEN) { /* a carry raises the exponent; the last bit of no mantissa bits is the leading 1 */
        uint64_t odd = r->mbits ? bits >> (52 - r->mbits) & 1 : 1;
        bits += (UINT64_C(1) << (51 - r->mbits)) - 1 + odd;
    }
    if (r->rule == CBQ_SCALE_CEIL) less = (int64_t)(largest >> 52) - 1023 - ((bits & mantissa) > (largest & mantissa));
    int64_t byte = (int64_t)(bits >> 52) - 1023 - less + 127;
    return (uint8_t)(byte < 0 ? 0 : byte > 254 ? 254 : byte);
}
CBQ_FN uint8_t cbq_scale_code_ggml(float magnitude) {
    float positive = __builtin_fabsf(magnitude);
    return positive <= 0x1.fffffep127f ? mxfp4_scale(positive) : 255;
}
