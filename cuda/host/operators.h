/* The operators of DeepSeek-V4 on the device, all called in one way: arrays and numbers in an order that each operator's
   comment in cuda/operators says. Shapes, types and strides were checked before; what is wrong here is undefined. */
#pragma once
#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CBQ_CUDA_DIMS = 4 };

/* What some operators have an end to: positions of a list, which one CTA sorts (choice.cu); those that are chosen without scores
   in memory (indexer.cu); columns of v (attention.cu). */
enum { CBQ_CUDA_MOST_LISTED = 1024, CBQ_CUDA_MOST_SELECTED = 512, CBQ_CUDA_MOST_COLUMNS = 1024 };

/* Types of elements: CBQ_F32, CBQ_F16 and CBQ_BF16 of csrc/base.h, and of positions, lengths and indices these. */
enum { CBQ_CUDA_I32 = 8, CBQ_CUDA_I64, CBQ_CUDA_F64 };

/* Strides are in elements, and 0 where an axis is broadcast. An argument that is left out has no data and no axes. */
typedef struct {
    void *data;
    int type, axes;
    int64_t shape[CBQ_CUDA_DIMS], strides[CBQ_CUDA_DIMS];
} cbq_cuda_array;

typedef struct {
    const cbq_cuda_array *arrays;
    const double *numbers;
    void *workspace; /* at a multiple of 16 */
    int processors;    /* multiprocessors of the device */
    int shared_memory; /* that a CTA may have, bytes */
} cbq_cuda_operands;

typedef struct {
    const char *name;
    int arrays, numbers; /* how many of them it takes */
    uint64_t (*workspace)(const cbq_cuda_operands *operands); /* bytes; NULL where it needs none */
    cudaError_t (*run)(const cbq_cuda_operands *operands, cudaStream_t stream);
} cbq_cuda_operator;

/* The i-th operator, NULL past the last. */
const cbq_cuda_operator *cbq_cuda_operator_at(int i);

#ifdef __cplusplus
}
#endif
