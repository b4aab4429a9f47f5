// Two packed words from each word of nibbles, in a loop over its halves. Where the loop's variable chose the array that they
// went to, `uint32_t *to = half ? high : low;`, and they were put into a uint4 one by one, in a loop that stores to a __restrict__
// pointer, nvcc 13.0.88 left half of the words unstored, for sm_75 to sm_90a. So one array is indexed by constants, as the kernels
// do it (table_to_float, decode8). -DCHOOSE_ARRAY is the other form.
#include <instructions.cuh>

// The bytes of `table` at the four nibbles of `index`; prmt takes three bits, and the fourth chooses between two look-ups.
static __device__ __forceinline__ uint32_t four_bytes(const uint32_t table[4], uint32_t index, uint32_t which) {
    return cu_permute(cu_permute(table[0], table[1], index), cu_permute(table[2], table[3], index), which);
}

// Byte b of w, less 128, times s: it is the last byte of the float 2^23.
static __device__ __forceinline__ float scaled(uint32_t w, uint32_t b, float s) {
    return s * (__uint_as_float(cu_permute(w, 0x4b000000u, 0x7540u + b)) - 8388736.0f);
}

static __device__ __forceinline__ void decode_word(uint32_t w, float s, uint32_t low[2], uint32_t high[2]) {
    const uint32_t table[4] = {0x3f2d1801u, 0x766a5d4fu, 0xa6998d81u, 0xf1d9c5b5u}; // 16 bytes, in no order
    uint32_t which = 0x32103210u | (w & 0x88888888u) >> 1, bytes[2];
#pragma unroll
    for (int i = 0; i < 2; i++) bytes[i] = four_bytes(table, w >> 16 * i & 0x7777u, which >> 16 * i);
#ifdef CHOOSE_ARRAY
    for (int half = 0; half < 2; half++) {
        uint32_t four = cu_permute(bytes[0], bytes[1], half ? 0x7531u : 0x6420u);
        float x[4];
        for (int i = 0; i < 4; i++) x[i] = scaled(four, i, s);
        uint32_t *to = half ? high : low;
        to[0] = cu_pack_bf16(x[0], x[1]);
        to[1] = cu_pack_bf16(x[2], x[3]);
    }
#else
    uint32_t pairs[4];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t four = cu_permute(bytes[0], bytes[1], half ? 0x7531u : 0x6420u);
        pairs[2 * half] = cu_pack_bf16(scaled(four, 0, s), scaled(four, 1, s));
        pairs[2 * half + 1] = cu_pack_bf16(scaled(four, 2, s), scaled(four, 3, s));
    }
    low[0] = pairs[0];
    low[1] = pairs[1];
    high[0] = pairs[2];
    high[1] = pairs[3];
#endif
}

// y[threads, 2]: bf16 of the low nibbles, then of the high ones, of sixteen codes to a thread.
extern "C" __global__ void __launch_bounds__(128)
    packed_words(const uint2 *__restrict__ nibbles, const float *__restrict__ scales, uint4 *__restrict__ y, uint32_t threads) {
    for (uint32_t t = threadIdx.x; t < threads; t += 128) {
        uint2 n = nibbles[t];
        uint32_t low[4], high[4];
        decode_word(n.x, scales[t], low, high);
        decode_word(n.y, scales[t], low + 2, high + 2);
        uint4 v, u;
        v.x = low[0];
        v.y = low[1];
        v.z = low[2];
        v.w = low[3];
        u.x = high[0];
        u.y = high[1];
        u.z = high[2];
        u.w = high[3];
        y[2 * t] = v;
        y[2 * t + 1] = u;
    }
}
