// What the instructions compute.
#include "instructions.cuh"

#include <math.h>
#include <string.h>

namespace shim {

void shuffle_xor(void *const lanes[32]) {
    for (int i = 0; i < 32; i++) {
        Shuffle &mine = *(Shuffle *)lanes[i];
        mine.result = ((const Shuffle *)lanes[(i ^ mine.mask) & 31])->value;
    }
}

void shuffle_up(void *const lanes[32]) {
    for (uint32_t i = 0; i < 32; i++) {
        ShuffleUp &mine = *(ShuffleUp *)lanes[i];
        mine.result = ((const ShuffleUp *)lanes[i < mine.below ? i : i - mine.below])->value;
    }
}

uint32_t pack_bf16(float low, float high) {
    float in[2] = {low, high};
    uint32_t pair = 0;
    for (int i = 0; i < 2; i++) {
        uint32_t bits;
        memcpy(&bits, &in[i], 4);
        uint32_t half = (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
        pair |= half << 16 * i;
    }
    return pair;
}

static void unpack_bf16(uint32_t pair, double out[2]) {
    for (int i = 0; i < 2; i++) {
        uint32_t bits = i ? pair & 0xffff0000u : pair << 16;
        float f;
        memcpy(&f, &bits, 4);
        out[i] = f;
    }
}

// The sum of a product and c, which are exact, as a float that is rounded to odd: towards zero, and odd where that lost something. It
// has more than two digits more than bf16, so that rounding it to bf16 is the only rounding.
static float to_odd(double product, double c) {
    double sum = product + c, rest = sum - product, lost = (product - (sum - rest)) + (c - rest);
    if (!isfinite(sum)) return (float)sum;
    float near = (float)sum;
    double off = (double)near == sum ? lost : sum - (double)near; // what near lacks has the sign of this
    if (off == 0) return near;
    if ((off < 0) == (near > 0) && near != 0) near = nextafterf(near, 0); // it was rounded away from zero
    uint32_t bits;
    memcpy(&bits, &near, 4);
    bits |= 1;
    memcpy(&near, &bits, 4);
    return near;
}
uint32_t fma_bf16x2(uint32_t a, uint32_t b, uint32_t c) {
    double x[2], y[2], z[2];
    unpack_bf16(a, x);
    unpack_bf16(b, y);
    unpack_bf16(c, z);
    return pack_bf16(to_odd(x[0] * y[0], z[0]), to_odd(x[1] * y[1], z[1]));
}

static void unpack_f16(uint32_t pair, double out[2]) {
    for (int i = 0; i < 2; i++) {
        uint32_t bits = pair >> 16 * i & 0xffff, exponent = bits >> 10 & 31, mantissa = bits & 1023;
        double magnitude = exponent == 31  ? (mantissa ? NAN : INFINITY)
                           : exponent == 0 ? ldexp(mantissa, -24)
                                           : ldexp(1024 + mantissa, (int)exponent - 25);
        out[i] = bits >> 15 ? -magnitude : magnitude;
    }
}

// The hardware's order of sums is its own; here they are made in double, where products are exact, and rounded once.
static void mma(void *const lanes[32], void (*unpack)(uint32_t pair, double out[2])) {
    double a[16][16], b[8][16]; // b by columns
    for (int lane = 0; lane < 32; lane++) {
        const Mma &m = *(const Mma *)lanes[lane];
        int g = lane / 4, q = lane % 4;
        for (int i = 0; i < 4; i++) unpack(m.a[i], &a[g + i % 2 * 8][2 * q + i / 2 * 8]);
        for (int i = 0; i < 2; i++) unpack(m.b[i], &b[g][2 * q + i * 8]);
    }
    for (int lane = 0; lane < 32; lane++) {
        const Mma &m = *(const Mma *)lanes[lane];
        int g = lane / 4, q = lane % 4;
        for (int i = 0; i < 4; i++) {
            const double *row = a[g + i / 2 * 8], *column = b[2 * q + i % 2];
            double sum = m.c[i];
            for (int k = 0; k < 16; k++) sum += row[k] * column[k];
            m.c[i] = (float)sum;
        }
    }
}
void mma_bf16(void *const lanes[32]) { mma(lanes, unpack_bf16); }
void mma_f16(void *const lanes[32]) { mma(lanes, unpack_f16); }

static uint32_t half_of(void *const lanes[32], int matrix, int row, int column) {
    uint16_t half;
    memcpy(&half, (const char *)((const Matrices *)lanes[8 * matrix + row])->row + 2 * column, 2);
    return half;
}
void load_matrices(void *const lanes[32]) {
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++) {
            int row = lane / 4, column = lane % 4 * 2;
            ((Matrices *)lanes[lane])->r[i] = half_of(lanes, i, row, column) | half_of(lanes, i, row, column + 1) << 16;
        }
}
void load_matrices_transposed(void *const lanes[32]) {
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++) {
            int row = lane % 4 * 2, column = lane / 4;
            ((Matrices *)lanes[lane])->r[i] = half_of(lanes, i, row, column) | half_of(lanes, i, row + 1, column) << 16;
        }
}

} // namespace shim
