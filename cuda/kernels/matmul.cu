// Products with blocks of every format and with plain floats: bf16 for up to 8 and up to 64 rows of x at a time, float32 for up to 8.
//
// Not yet run on a GPU: tests run it with threads on the CPU, and the PTX that nvcc makes of it in an interpreter.
#include "in_blocks.cuh"
#include "in_plain.cuh"
#include "products.h"
#include "route.cuh"

#include <launch.cuh>

#define KERNELS(f, ...) PRODUCT_KERNELS(f, in_blocks<f##_traits>)
CBQ_FORMATS(KERNELS, CBQ_NOTHING)
CBQ_PLANE_BLOCKS(KERNELS)
#define PLAIN(f, ...) PRODUCT_KERNELS(f, in_plain<f##_traits>)
CBQ_PLAIN_PRODUCTS(PLAIN)

extern "C" __global__ void __launch_bounds__(THREADS) cbq_sum_parts_8(product_args a) { sum_parts<8>(a); }
extern "C" __global__ void __launch_bounds__(THREADS) cbq_sum_parts_64(product_args a) { sum_parts<64>(a); }

#define ROW(f, tag, n, bytes, ...) PRODUCT_ROW(tag, 1, n, bytes, f, in_blocks<f##_traits>)
#define PLAIN_ROW(f, tag, n, bytes) PRODUCT_ROW(tag, 1, n, bytes, f, in_plain<f##_traits>)
static const product_row blocks[] = {CBQ_FORMATS(ROW, CBQ_NOTHING) CBQ_PLANE_BLOCKS(ROW) CBQ_PLAIN_PRODUCTS(PLAIN_ROW)};

static product_rows rows_of(int layout) {
    if (layout == CBQ_CUDA_FRAGMENTS) return cbq_products_of_fragments();
    return {blocks, sizeof blocks / sizeof *blocks};
}

static const product_row *find_row(int layout, int tag) {
    product_rows all = rows_of(layout);
    for (const product_row *r = all.rows; r < all.rows + all.count; r++)
        if (r->tag == tag) return r;
    return NULL;
}

// Up to 8 tokens (to an expert, on average): the small tile, which reads weights no slower and takes less shared memory.
static const product_kernel *find_kernel(const product_row *r, const cbq_cuda_product *p) {
    if (p->precision == CBQ_CUDA_FLOAT32) return &r->f32_8;
    uint64_t tokens = p->ids ? rows_of_y(p) / p->experts : p->m;
    return tokens <= 8 ? &r->bf16_8 : &r->bf16_64;
}

static uint64_t ctas_of_kernel(const product_kernel *k, const cbq_cuda_product *p) {
    uint64_t fit = p->shared_memory / ((uint64_t)k->shared_bytes + 1024); // the driver keeps 1 KiB a CTA
    uint64_t each = fit < 1 ? 1 : fit < (uint64_t)k->ctas ? fit : (uint64_t)k->ctas;
    return each * (uint64_t)p->processors;
}

// What is where in the workspace: parts of sums, then what routing leaves.
struct workspace_layout {
    uint64_t route, bytes;
};
static workspace_layout lay_out(const product_kernel *k, const cbq_cuda_product *p) {
    workspace_layout l;
    l.route = ctas_of_kernel(k, p) * 2 * ROWS * (uint64_t)k->tokens * sizeof(float);
    l.bytes = l.route + (p->ids ? route_bytes(p->experts, rows_of_y(p)) : 0);
    return l;
}

extern "C" int cbq_cuda_has_product(int tag) { return find_row(CBQ_CUDA_BLOCKS, tag) != NULL; }

extern "C" uint64_t cbq_cuda_product_workspace(const cbq_cuda_product *p) {
    const product_row *r = find_row(p->layout, p->tag);
    return r ? lay_out(find_kernel(r, p), p).bytes : 0;
}

extern "C" cudaError_t cbq_cuda_matmul(const cbq_cuda_product *p, cudaStream_t stream, const char **name) {
    const product_row *r = find_row(p->layout, p->tag);
    if (!r) return cudaErrorInvalidValue;
    const product_kernel *k = find_kernel(r, p);
    *name = k->name;
    if (rows_of_y(p) == 0 || p->n == 0) return cudaSuccess;
    uint64_t expert_bytes = (p->n + r->rows - 1) / r->rows * ((p->k + r->elements - 1) / r->elements) * r->bytes;
    product_args a = arguments(p, expert_bytes, (uint64_t)k->step);
    if (p->ids) {
        cudaError_t error = route(a, p->ids, (uint8_t *)p->workspace + lay_out(k, p).route, k->tokens, stream);
        if (error != cudaSuccess) return error;
    }
    unsigned ctas = (unsigned)ctas_of_kernel(k, p);
    if (!p->ids) { // the number of steps is known here: no CTA without one, and no second kernel where no tile is cut
        uint64_t tiles = (p->m + k->tokens - 1) / k->tokens * row_tiles(a), steps = tiles * a.steps;
        if (steps < ctas) ctas = (unsigned)steps;
        if (tiles % ctas == 0) return cu_launch(k->run, dim3(ctas), THREADS, k->shared_bytes, stream, a);
    }
    cudaError_t error = cu_launch(k->run, dim3(ctas), THREADS, k->shared_bytes, stream, a);
    if (error != cudaSuccess) return error;
    return cu_launch(k->tokens == 8 ? cbq_sum_parts_8 : cbq_sum_parts_64, dim3(ctas), THREADS, 0, stream, a);
}

// Those without a format.
static const plain_kernel plain_kernels[] = {
    {"sum_parts_8", (const void *)cbq_sum_parts_8}, {"sum_parts_64", (const void *)cbq_sum_parts_64}, {"route_count", (const void *)cbq_route_count},
    {"route_order", (const void *)cbq_route_order}, {"route_clear", (const void *)cbq_route_clear},
};
enum { PLAIN_KERNELS = sizeof plain_kernels / sizeof *plain_kernels };

extern "C" const char *cbq_cuda_kernel_matmul(int i, const void **function) {
    for (int layout = 0; layout < CBQ_CUDA_LAYOUTS; layout++) {
        product_rows all = rows_of(layout);
        if (i >= 3 * all.count) {
            i -= 3 * all.count;
            continue;
        }
        const product_row *r = all.rows + i / 3;
        const product_kernel *k = i % 3 == 0 ? &r->bf16_8 : i % 3 == 1 ? &r->bf16_64 : &r->f32_8;
        *function = (const void *)k->run;
        return k->name;
    }
    if (i >= PLAIN_KERNELS) return NULL;
    *function = plain_kernels[i].run;
    return plain_kernels[i].name;
}
