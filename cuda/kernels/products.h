// The kernels of products, as tables: what matmul.cu chooses from.
#pragma once
#include "product.cuh"

#include "../host/kernels.h"

struct product_kernel {
    void (*run)(product_args);
    int tokens, step, shared_bytes, ctas;
    const char *name;
};
// A format in one layout: pieces of `rows` rows and `elements` of k, each of so many bytes.
struct product_row {
    int tag;
    uint32_t rows, elements, bytes;
    product_kernel bf16_8, bf16_64, f32_8;
};

// The CTAs on a multiprocessor are said to the compiler: it would spill for more of them.
#define PRODUCT_KERNEL(name, L, ...) \
    static_assert(layout_of<L, __VA_ARGS__>::bytes <= 99 * 1024, "fits the smallest GPUs"); \
    extern "C" __global__ void __launch_bounds__(THREADS, (ctas_of<__VA_ARGS__>())) cbq_matmul_##name(product_args a) { product<L, __VA_ARGS__>(a); }
#define PRODUCT_KERNELS(name, L) \
    PRODUCT_KERNEL(name##_bf16_8, L, multiply_bf16<8>) PRODUCT_KERNEL(name##_bf16_64, L, multiply_bf16<64>) \
    PRODUCT_KERNEL(name##_f32_8, L, multiply_f32)

#define PRODUCT_ENTRY(name, L, ...) {cbq_matmul_##name, __VA_ARGS__::TOKENS, layout_of<L, __VA_ARGS__>::step, layout_of<L, __VA_ARGS__>::bytes, ctas_of<__VA_ARGS__>(), "matmul_" #name}
#define PRODUCT_ROW(tag, rows, elements, bytes, name, L) \
    {tag, rows, elements, bytes, PRODUCT_ENTRY(name##_bf16_8, L, multiply_bf16<8>), PRODUCT_ENTRY(name##_bf16_64, L, multiply_bf16<64>), \
     PRODUCT_ENTRY(name##_f32_8, L, multiply_f32)},

struct product_rows {
    const product_row *rows;
    int count;
};

// A kernel without a format.
struct plain_kernel {
    const char *name;
    const void *run;
};

static inline uint64_t rows_of_y(const cbq_cuda_product *p) { return p->ids ? p->m * p->picks : p->m; }

// What kernels are told, but for routing: W of an expert has so many bytes, a step so many elements.
static inline product_args arguments(const cbq_cuda_product *p, uint64_t expert_bytes, uint64_t step) {
    product_args a = {};
    a.x = (const uint8_t *)p->x;
    a.w = (const uint8_t *)p->w;
    a.y = (uint8_t *)p->y;
    a.parts = (float *)p->workspace;
    a.x_stride = p->x_stride;
    a.y_stride = p->y_stride;
    a.expert_bytes = expert_bytes;
    a.m = (uint32_t)p->m;
    a.n = (uint32_t)p->n;
    a.k = (uint32_t)p->k;
    a.experts = p->ids ? (uint32_t)p->experts : 1;
    a.picks = p->ids ? (uint32_t)p->picks : 1;
    a.steps = (uint32_t)((p->k + step - 1) / step);
    a.x_dtype = p->x_dtype;
    a.y_dtype = p->y_dtype;
    return a;
}
product_rows cbq_products_of_fragments(); // fragments.cu
