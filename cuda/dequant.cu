// Decode on the device: every format through the same headers as on the CPU. One thread decodes a run of 32 elements
// and writes it in 16-byte stores; a plain type takes one thread an element.
//
// Not yet run on a GPU: tests run the PTX that nvcc makes of it in an interpreter.
#include "decode.cuh"

// Four floats at y: 16 bytes, or 8 of f16 or bf16, rounded to nearest even.
template <int DTYPE> static __device__ __forceinline__ void store4(uint8_t *y, const float x[4]) {
    if (DTYPE == CBQ_F32) {
        *(float4 *)y = make_float4(x[0], x[1], x[2], x[3]);
    } else {
        uint32_t h[4];
#pragma unroll
        for (int i = 0; i < 4; i++) h[i] = DTYPE == CBQ_F16 ? cbq_f32_to_f16(x[i]) : cbq_f32_to_bf16(x[i]);
        *(uint2 *)y = make_uint2(h[0] | h[1] << 16, h[2] | h[3] << 16);
    }
}

template <class T, int DTYPE> static __device__ __forceinline__ void dequant_run(const uint8_t *blocks, uint8_t *y, uint64_t n_blocks) {
    const uint32_t runs = T::elements / 32, size = DTYPE == CBQ_F32 ? 4 : 2;
    const uint32_t groups = T::group < 32 ? 32 / T::group : 1, words = 8 / groups;
    uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n_blocks * runs) return;
    const uint8_t *b = blocks + i / runs * T::bytes;
    uint32_t r = (uint32_t)(i % runs);
    y += i * 32 * size;
#pragma unroll
    for (uint32_t g = 0; g < groups; g++) {
        float s, m;
        group_scale<T>(b, T::group < 32 ? r * groups + g : r * 32 / T::group, s, m);
#pragma unroll
        for (uint32_t c = g * words; c < (g + 1) * words; c++) {
            float x[4];
            decode4<T>(b, r, c, s, m, x);
            store4<DTYPE>(y + 4 * c * size, x);
        }
    }
}

template <int DTYPE> static __device__ __forceinline__ void store1(uint8_t *y, float x) {
    if (DTYPE == CBQ_F32) *(float *)y = x;
    else *(uint16_t *)y = DTYPE == CBQ_F16 ? cbq_f32_to_f16(x) : cbq_f32_to_bf16(x);
}

#define BLOCK_KERNEL(f, out, OUT) \
    extern "C" __global__ void cbq_dequant_##f##_##out(const uint8_t *__restrict__ blocks, uint8_t *__restrict__ y, uint64_t n) { dequant_run<f##_traits, OUT>(blocks, y, n); }
#define BLOCK_KERNELS(f, ...) BLOCK_KERNEL(f, f32, CBQ_F32) BLOCK_KERNEL(f, f16, CBQ_F16) BLOCK_KERNEL(f, bf16, CBQ_BF16)

#define PLAIN_KERNEL(f, bytes, out, OUT) \
    extern "C" __global__ void cbq_dequant_##f##_##out(const uint8_t *__restrict__ p, uint8_t *__restrict__ y, uint64_t n) { \
        uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; \
        if (i < n) store1<OUT>(y + i * (OUT == CBQ_F32 ? 4 : 2), cbq_##f##_value(p + i * bytes)); }
#define PLAIN_KERNELS(f, tag, bytes, load, doc) PLAIN_KERNEL(f, bytes, f32, CBQ_F32) PLAIN_KERNEL(f, bytes, f16, CBQ_F16) PLAIN_KERNEL(f, bytes, bf16, CBQ_BF16)

CBQ_FORMATS(BLOCK_KERNELS, PLAIN_KERNELS)
