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
product_rows cbq_products_of_fragments(); // fragments.cu
