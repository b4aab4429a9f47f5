// Floats to memory as f32, f16 or bf16, rounded to nearest even.
#pragma once
#include "base.h"

#include <instructions.cuh>

CBQ_FN uint32_t float_size(int dtype) { return dtype == CBQ_F32 ? 4 : 2; }

template <int DTYPE> CBQ_FN uint32_t to_half(float x) { return DTYPE == CBQ_F16 ? cbq_f32_to_f16(x) : cbq_f32_to_bf16(x); }

// Eight floats, at a multiple of 16 bytes.
template <int DTYPE> CBQ_FN void store8(uint8_t *y, const float x[8]) {
    if (DTYPE == CBQ_F32) {
        ((float4 *)y)[0] = make_float4(x[0], x[1], x[2], x[3]);
        ((float4 *)y)[1] = make_float4(x[4], x[5], x[6], x[7]);
    } else {
        uint32_t pairs[4];
#pragma unroll
        for (int i = 0; i < 4; i++) pairs[i] = to_half<DTYPE>(x[2 * i]) | to_half<DTYPE>(x[2 * i + 1]) << 16;
        *(uint4 *)y = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    }
}

template <int DTYPE> CBQ_FN void store1(uint8_t *y, float x) {
    if (DTYPE == CBQ_F32) *(float *)y = x;
    else *(uint16_t *)y = (uint16_t)to_half<DTYPE>(x);
}

// The same where the type is known when it runs only.
CBQ_FN void store1(uint8_t *y, float x, int dtype) {
    if (dtype == CBQ_F32) store1<CBQ_F32>(y, x);
    else if (dtype == CBQ_F16) store1<CBQ_F16>(y, x);
    else store1<CBQ_BF16>(y, x);
}

CBQ_FN float load1(const uint8_t *x, int dtype) {
    if (dtype == CBQ_F32) return *(const float *)x;
    uint32_t half = *(const uint16_t *)x;
    return dtype == CBQ_F16 ? cbq_f16_to_f32(half) : cbq_as_f32(half << 16);
}
