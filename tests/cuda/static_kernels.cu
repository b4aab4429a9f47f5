// Kernels as they should not be, for the tests of what is read from machine code.
#include <instructions.cuh>

// More values than registers: each is needed again after all were read.
extern "C" __global__ void __launch_bounds__(1024, 2) static_spills(const float *x, float *y) {
    float v[64];
#pragma unroll
    for (int i = 0; i < 64; i++) v[i] = x[i * 1024 + threadIdx.x];
#pragma unroll
    for (int i = 0; i < 64; i++) y[i * 1024 + threadIdx.x] = v[i] * v[63 - i] + v[(7 * i + 3) % 64];
}

// What the counts are counts of.
extern "C" __global__ void static_counts(const uint4 *x, uint4 *y, float *z, int n) {
    __shared__ __align__(16) uint4 staged[32];
    cu_copy16_async(staged + threadIdx.x, x + threadIdx.x);
    cu_commit();
    cu_wait<0>();
    uint4 v = x[32 + threadIdx.x], w = staged[threadIdx.x];
    uint32_t a[4] = {v.x, v.y, v.z, v.w}, b[2] = {w.x, w.y};
    float c[4] = {};
#pragma unroll 1
    for (int i = 0; i < n; i++) {
        cu_mma_bf16(c, a, b);
        cu_mma_bf16(c, a, b + 0);
    }
    cu_mma_bf16(c, a, b);
    for (int i = 0; i < 4; i++) z[4 * threadIdx.x + i] = c[i];
    y[threadIdx.x] = v;
}
