// Decode: every format through the same headers as on the CPU. A CTA takes 4096 elements: their bytes go through shared
// memory in loads of 16, and a thread decodes eight elements at a time and stores them in 16 bytes.
//
// Not yet run on a GPU: tests run it with threads on the CPU, and the PTX that nvcc makes of it in an interpreter.
#include "decode.cuh"
#include "store.cuh"

#include "../host/kernels.h"
#include <launch.cuh>

enum { THREADS = 128, TILE = 4096 };

struct dequant_args {
    const uint8_t *blocks;
    uint8_t *y;
    uint64_t n_blocks;
};

template <class T, int DTYPE> CBQ_FN void dequant_tile(dequant_args args) {
    const uint32_t blocks = TILE / T::elements, eights = T::elements / 8; // a tile's bytes are a multiple of 16: see the check below
    __shared__ __align__(16) uint8_t staged[blocks * T::bytes];
    uint64_t first = (uint64_t)blockIdx.x * blocks;
    uint32_t here = args.n_blocks - first < blocks ? (uint32_t)(args.n_blocks - first) : blocks;
    const uint8_t *from = args.blocks + first * T::bytes;
    for (uint32_t i = 16 * threadIdx.x; i < here * T::bytes; i += 16 * THREADS) *(uint4 *)(staged + i) = *(const uint4 *)(from + i);
    cu_barrier();
    for (uint32_t i = threadIdx.x; i < here * eights; i += THREADS) {
        const uint8_t *b = staged + i / eights * T::bytes;
        uint32_t e = i % eights * 8;
        float s, m, x[8];
        group_scale<T>(b, e / T::group, s, m);
        decode4<T>(b, e / 32, e % 32 / 4, s, m, x);
        decode4<T>(b, e / 32, e % 32 / 4 + 1, s, m, x + 4);
        store8<DTYPE>(args.y + (first * T::elements + 8 * (uint64_t)i) * (DTYPE == CBQ_F32 ? 4 : 2), x);
    }
}

#define BLOCK_KERNEL(f, out, OUT) \
    extern "C" __global__ void __launch_bounds__(THREADS) cbq_dequant_##f##_##out(dequant_args args) { dequant_tile<f##_traits, OUT>(args); }
#define BLOCK_KERNELS(f, tag, n, bytes, ...) \
    static_assert(TILE / n * bytes % 16 == 0, "a tile of " #f " begins at a multiple of 16 bytes"); \
    BLOCK_KERNEL(f, f32, CBQ_F32) BLOCK_KERNEL(f, f16, CBQ_F16) BLOCK_KERNEL(f, bf16, CBQ_BF16)

#define PLAIN_KERNEL(f, bytes, out, OUT) \
    extern "C" __global__ void __launch_bounds__(THREADS) cbq_dequant_##f##_##out(dequant_args args) { \
        uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x; \
        if (i < args.n_blocks) store1<OUT>(args.y + i * (OUT == CBQ_F32 ? 4 : 2), cbq_##f##_value(args.blocks + i * bytes)); }
#define PLAIN_KERNELS(f, tag, bytes, load, doc) PLAIN_KERNEL(f, bytes, f32, CBQ_F32) PLAIN_KERNEL(f, bytes, f16, CBQ_F16) PLAIN_KERNEL(f, bytes, bf16, CBQ_BF16)

CBQ_FORMATS(BLOCK_KERNELS, PLAIN_KERNELS)
CBQ_PLANE_BLOCKS(BLOCK_KERNELS)

// What the host needs to know of a kernel, by format and output type.
struct dequant_kernel {
    int tag;
    uint32_t blocks_per_cta;
    void (*run[3])(dequant_args);
    const char *name[3];
};
#define ROW(f, tag, blocks) \
    {tag, blocks, {cbq_dequant_##f##_f32, cbq_dequant_##f##_f16, cbq_dequant_##f##_bf16}, {"dequant_" #f "_f32", "dequant_" #f "_f16", "dequant_" #f "_bf16"}},
#define BLOCK_ROW(f, tag, n, ...) ROW(f, tag, TILE / n)
#define PLAIN_ROW(f, tag, ...) ROW(f, tag, THREADS)
static const dequant_kernel kernels[] = {CBQ_FORMATS(BLOCK_ROW, PLAIN_ROW) CBQ_PLANE_BLOCKS(BLOCK_ROW)};
enum { KERNELS = sizeof kernels / sizeof *kernels };

extern "C" cudaError_t cbq_cuda_dequant(int tag, int dtype, const void *blocks, uint64_t n_blocks, void *y, cudaStream_t stream, const char **name) {
    for (const dequant_kernel *k = kernels; k < kernels + KERNELS; k++) {
        if (k->tag != tag) continue;
        uint64_t ctas = (n_blocks + k->blocks_per_cta - 1) / k->blocks_per_cta;
        if (ctas > 0x7fffffff) return cudaErrorInvalidValue;
        *name = k->name[dtype];
        if (n_blocks == 0) return cudaSuccess;
        dequant_args args = {(const uint8_t *)blocks, (uint8_t *)y, n_blocks};
        return cu_launch(k->run[dtype], dim3((unsigned)ctas), THREADS, 0, stream, args);
    }
    return cudaErrorInvalidValue;
}

extern "C" const char *cbq_cuda_kernel_dequant(int i, const void **function) {
    if (i >= 3 * KERNELS) return NULL;
    *function = (const void *)kernels[i / 3].run[i % 3];
    return kernels[i / 3].name[i % 3];
}
