/* What the module calls: one function to an operation. It chooses the kernel, starts it on the stream and returns;
   `name` tells which kernel that was. Arguments were checked before: what is wrong here is undefined.

   Blocks are as in a file, at an address that is a multiple of 16, with CBQ_CUDA_MARGIN readable bytes on both sides:
   kernels copy 16 bytes at a time and round both ends outwards. */
#pragma once
#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CBQ_CUDA_MARGIN = 16 };

/* y[n_blocks * elements] in `dtype` (CBQ_F32, CBQ_F16, CBQ_BF16 of csrc/base.h); y at a multiple of 16. `tag` is a format's, of its row.
   For a plain type a block is one element. */
cudaError_t cbq_cuda_dequant(int tag, int dtype, const void *blocks, uint64_t n_blocks, void *y, cudaStream_t stream, const char **name);

/* How weights lie in memory: blocks as in a file, or in the order in which lanes of products take them (device/fragments.cuh). */
typedef enum { CBQ_CUDA_BLOCKS, CBQ_CUDA_FRAGMENTS, CBQ_CUDA_LAYOUTS } cbq_cuda_layout;

/* Experts (1 without), rows and columns of weights. Fragments lie at a multiple of 16, and need no margin. */
typedef struct {
    int tag;
    uint64_t experts, n, k;
} cbq_cuda_weights;

/* Bytes of fragments; 0 where the format has none. */
uint64_t cbq_cuda_fragment_bytes(const cbq_cuda_weights *w);
/* Blocks to fragments and back, bit for bit. */
cudaError_t cbq_cuda_pack(const cbq_cuda_weights *w, const void *blocks, void *fragments, cudaStream_t stream, const char **name);
cudaError_t cbq_cuda_unpack(const cbq_cuda_weights *w, const void *fragments, void *blocks, cudaStream_t stream, const char **name);
/* y[experts, n, k] in `dtype`, as cbq_cuda_dequant gives it; y at a multiple of 16. */
cudaError_t cbq_cuda_dequant_fragments(const cbq_cuda_weights *w, int dtype, const void *fragments, void *y, cudaStream_t stream, const char **name);

typedef enum { CBQ_CUDA_BF16, CBQ_CUDA_FLOAT32 } cbq_cuda_precision;

/* y[m, n] = x[m, k] . W[n, k]^T. With experts: W[experts, n, k], ids[m, picks], y[m * picks, n]: row i of y is row i / picks of x times
   expert ids[i]; where ids[i] is no expert, it is zero.
   x, y: dtype CBQ_F32, CBQ_F16 or CBQ_BF16; strides in elements, of rows. W counts as bf16(decoded), whatever the precision:
   bf16 rounds x to bf16 too and uses tensor cores; float32 keeps x. Sums are float32.
   The same call on the same kind of GPU gives the same bits. */
typedef struct {
    int tag, precision, x_dtype, y_dtype;
    uint64_t m, n, k, x_stride, y_stride;
    const void *x, *w;
    void *y;
    uint64_t experts, picks; /* 0 and 1 without experts */
    const int32_t *ids;
    void *workspace;        /* at a multiple of 16 */
    int processors;         /* multiprocessors of the device */
    uint64_t shared_memory; /* of a multiprocessor, bytes */
    int hopper;             /* of cbq_cuda_has_hopper */
    int layout;             /* of w: cbq_cuda_layout */
} cbq_cuda_product;

/* Whether there are products with weights of that format. */
int cbq_cuda_has_product(int tag);
/* Bytes that the workspace must have. */
uint64_t cbq_cuda_product_workspace(const cbq_cuda_product *p);
cudaError_t cbq_cuda_matmul(const cbq_cuda_product *p, cudaStream_t stream, const char **name);

/* The same with Hopper's own instructions (matmul_wgmma.cu), for products that suit them. */
int cbq_cuda_wgmma_suits(const cbq_cuda_product *p);
uint64_t cbq_cuda_wgmma_workspace(const cbq_cuda_product *p);
cudaError_t cbq_cuda_wgmma_matmul(const cbq_cuda_product *p, cudaStream_t stream, const char **name);
/* Whether the current device is of compute capability 9.0 and kernels were compiled for sm_90a. */
cudaError_t cbq_cuda_has_hopper(int *yes);

/* y[t, n] = sum over j of weights[t, j] * z[t * picks + j, n], sums in float32, j ascending; ids below 0 are left out. z is float32. */
typedef struct {
    const float *z, *weights;
    const int32_t *ids;
    void *y;
    int y_dtype;
    uint64_t tokens, picks, n, y_stride;
} cbq_cuda_weighted_sum;
cudaError_t cbq_cuda_moe_sum(const cbq_cuda_weighted_sum *s, cudaStream_t stream, const char **name);

/* All kernels, for cudaFuncGetAttributes and for tests: the i-th name, NULL past the last. */
const char *cbq_cuda_kernel(int i, const void **function);

#ifdef __cplusplus
}
#endif
