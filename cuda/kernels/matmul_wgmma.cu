// Products with blocks for many tokens, on Hopper: bf16, up to 256 rows of x at a time, for every format.
//
// Not yet run on a GPU: tests run it with threads on the CPU, and the PTX that nvcc makes of it in an interpreter.
#include "products.h"
#include "wgmma_product.cuh"

#include <launch.cuh>

// Code for other architectures has kernels of these names that nobody can start: they allow fewer threads than it takes.
#if CU_HOPPER
#define BOUNDS __launch_bounds__(WGMMA_THREADS, 1)
#define BODY(...) __VA_ARGS__
#else
#define BOUNDS __launch_bounds__(32)
#define BODY(...) __trap();
#endif
#define KERNEL(f, ...) \
    static_assert(wgmma_layout<f##_traits, TOKENS>::bytes <= wgmma_layout<f##_traits, TOKENS>::most, "fits a CTA of Hopper"); \
    extern "C" __global__ void BOUNDS cbq_matmul_##f##_bf16_wgmma_256(product_args a) { BODY(wgmma_product<f##_traits, TOKENS>(a);) }
enum { TOKENS = 256 };
CBQ_FORMATS(KERNEL, CBQ_NOTHING)
CBQ_PLANE_BLOCKS(KERNEL)

extern "C" __global__ void __launch_bounds__(THREADS) cbq_wgmma_pack(pack_args a) { pack_row(a); }
extern "C" __global__ void __launch_bounds__(WGMMA_CONSUMERS) cbq_wgmma_sum_parts_256(product_args a) { sum_parts<TOKENS, WGMMA_ROWS>(a); }

struct wgmma_kernel {
    int tag;
    uint32_t elements, bytes;
    void (*run)(product_args);
    int shared_bytes;
    const char *name;
};
#define ROW(f, tag, n, size, ...) \
    {tag, n, size, cbq_matmul_##f##_bf16_wgmma_256, wgmma_layout<f##_traits, TOKENS>::bytes, "matmul_" #f "_bf16_wgmma_256"},
static const wgmma_kernel kernels[] = {CBQ_FORMATS(ROW, CBQ_NOTHING) CBQ_PLANE_BLOCKS(ROW)};
enum { FORMATS = sizeof kernels / sizeof *kernels };

static const wgmma_kernel *find_kernel(int tag) {
    for (const wgmma_kernel *k = kernels; k < kernels + FORMATS; k++)
        if (k->tag == tag) return k;
    return NULL;
}

// From so many tokens on (to an expert, on average). Not measured. Up to 64 the tile of matmul.cu has them all. From there on it decodes each
// weight again for 64 more, and here that is done once for 256; a tile of up to 128 tokens takes products of 128.
enum { LEAST_TOKENS = 65 };

extern "C" int cbq_cuda_wgmma_suits(const cbq_cuda_product *p) {
    uint64_t tokens = p->ids ? rows_of_y(p) / p->experts : p->m;
    return p->hopper && p->layout == CBQ_CUDA_BLOCKS && p->precision == CBQ_CUDA_BF16 && tokens >= LEAST_TOKENS && find_kernel(p->tag) != NULL;
}

extern "C" cudaError_t cbq_cuda_has_hopper(int *yes) {
    *yes = 0;
    int major = 0, minor = 0, device = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    if (error != cudaSuccess || major != 9 || minor != 0) return error;
    cudaFuncAttributes attributes;
    error = cudaFuncGetAttributes(&attributes, (const void *)kernels[0].run);
    if (error == cudaSuccess) *yes = attributes.maxThreadsPerBlock >= WGMMA_THREADS;
    return error;
}

// What is where in the workspace: parts of sums, then what routing leaves, then rows of x.
struct workspace_layout {
    uint64_t route, x, bytes;
};
static workspace_layout lay_out(const cbq_cuda_product *p) {
    workspace_layout l;
    l.route = (uint64_t)p->processors * 2 * WGMMA_ROWS * TOKENS * sizeof(float);
    l.x = (l.route + (p->ids ? route_bytes(p->experts, rows_of_y(p)) : 0) + 127) / 128 * 128;
    l.bytes = l.x + groups_of_x(rows_of_y(p), p->experts) * chunks_of(p->k) * GROUP_BYTES;
    return l;
}
extern "C" uint64_t cbq_cuda_wgmma_workspace(const cbq_cuda_product *p) { return lay_out(p).bytes; }

extern "C" cudaError_t cbq_cuda_wgmma_matmul(const cbq_cuda_product *p, cudaStream_t stream, const char **name) {
    const wgmma_kernel *k = find_kernel(p->tag);
    if (!k) return cudaErrorInvalidValue;
    *name = k->name;
    if (rows_of_y(p) == 0 || p->n == 0) return cudaSuccess;
    workspace_layout l = lay_out(p);
    uint8_t *workspace = (uint8_t *)p->workspace;
    product_args a = arguments(p, p->n * (p->k / k->elements) * k->bytes, WGMMA_STEP);
    cudaError_t error = p->ids ? route(a, p->ids, workspace + l.route, TOKENS, stream) : cudaSuccess;
    if (error != cudaSuccess) return error;
    pack_args pack = {a, workspace + l.x, groups_of_x(rows_of_y(p), p->experts)};
    error = cu_launch(cbq_wgmma_pack, dim3((unsigned)rows_of_y(p)), THREADS, 0, stream, pack);
    if (error != cudaSuccess) return error;
    a.x = pack.to;
    a.x_stride = pack.groups;
    uint64_t ctas = (uint64_t)p->processors, tiles = (p->m + TOKENS - 1) / TOKENS * row_tiles<WGMMA_ROWS>(a);
    if (!p->ids && tiles * a.steps < ctas) ctas = tiles * a.steps; // no CTA without a step
    error = cu_launch(k->run, dim3((unsigned)ctas), WGMMA_THREADS, (size_t)k->shared_bytes, stream, a);
    if (error != cudaSuccess || (!p->ids && tiles % ctas == 0)) return error; // no tile is cut
    return cu_launch(cbq_wgmma_sum_parts_256, dim3((unsigned)ctas), WGMMA_CONSUMERS, 0, stream, a);
}

// Those without a format.
static const plain_kernel plain_kernels[] = {
    {"wgmma_pack", (const void *)cbq_wgmma_pack},
    {"wgmma_sum_parts_256", (const void *)cbq_wgmma_sum_parts_256},
};
enum { PLAIN_KERNELS = sizeof plain_kernels / sizeof *plain_kernels };

extern "C" const char *cbq_cuda_kernel_wgmma(int i, const void **function) {
    if (i >= FORMATS) {
        i -= FORMATS;
        if (i >= PLAIN_KERNELS) return NULL;
        *function = plain_kernels[i].run;
        return plain_kernels[i].name;
    }
    *function = (const void *)kernels[i].run;
    return kernels[i].name;
}
