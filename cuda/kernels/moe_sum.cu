// The weighted sum over the experts of a token.
//
// Not yet run on a GPU: tests run it with threads on the CPU, and the PTX that nvcc makes of it in an interpreter.
#include "store.cuh"

#include "../host/kernels.h"
#include <launch.cuh>

enum { SUM_THREADS = 128 };

// One CTA to SUM_THREADS columns of a token.
extern "C" __global__ void __launch_bounds__(SUM_THREADS) cbq_moe_sum(cbq_cuda_weighted_sum a) {
    uint64_t token = blockIdx.x, column = (uint64_t)blockIdx.y * SUM_THREADS + threadIdx.x;
    if (column >= a.n) return;
    float sum = 0;
    for (uint64_t j = 0; j < a.picks; j++) {
        uint64_t row = token * a.picks + j;
        if (a.ids[row] >= 0) sum = fmaf(a.weights[row], a.z[row * a.n + column], sum);
    }
    store1((uint8_t *)a.y + (token * a.y_stride + column) * float_size(a.y_dtype), sum, a.y_dtype);
}

extern "C" cudaError_t cbq_cuda_moe_sum(const cbq_cuda_weighted_sum *s, cudaStream_t stream, const char **name) {
    *name = "moe_sum";
    if (s->tokens == 0 || s->n == 0) return cudaSuccess;
    dim3 grid((unsigned)s->tokens, (unsigned)((s->n + SUM_THREADS - 1) / SUM_THREADS));
    return cu_launch(cbq_moe_sum, grid, SUM_THREADS, 0, stream, *s);
}

extern "C" const char *cbq_cuda_kernel_moe_sum(int i, const void **function) {
    *function = (const void *)cbq_moe_sum;
    return i == 0 ? "moe_sum" : NULL;
}
