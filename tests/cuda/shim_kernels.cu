// Small kernels for the shim's own tests. `bug` plants a fault; 0 is correct.
#include "base.h"

#include <instructions.cuh>
#include <launch.cuh>

enum { THREADS = 128, FLOATS = 4 * THREADS };

// ---- sums of a pipeline: y[block][thread] = sum over steps of the four floats that another thread staged ----

enum pipeline_bug { NO_WAIT = 1, WAIT_FOR_TOO_FEW, NO_BARRIER_AFTER_STAGING, NO_BARRIER_BEFORE_OVERWRITING, NO_COMMIT };
struct pipeline_args {
    const float *x; // [blocks, steps, FLOATS]
    float *y;       // [blocks, THREADS]
    int steps, bug;
};

extern "C" __global__ void __launch_bounds__(THREADS) shim_pipeline(pipeline_args args) {
    CU_DYNAMIC_SHARED(raw);
    float *staged = (float *)raw, sum = 0;
    const float *x = args.x + (size_t)blockIdx.x * args.steps * FLOATS + 4 * threadIdx.x;
    cu_copy16_async(staged + 4 * threadIdx.x, x);
    if (args.bug != NO_COMMIT) cu_commit();
    for (int step = 0; step < args.steps; step++) {
        if (step + 1 < args.steps) cu_copy16_async(staged + (step + 1) % 2 * FLOATS + 4 * threadIdx.x, x + (step + 1) * FLOATS);
        if (args.bug != NO_COMMIT) cu_commit();
        if (args.bug == WAIT_FOR_TOO_FEW) cu_wait<2>();
        else if (args.bug != NO_WAIT) cu_wait<1>();
        if (args.bug != NO_BARRIER_AFTER_STAGING) cu_barrier();
        const float *other = staged + step % 2 * FLOATS + 4 * (THREADS - 1 - threadIdx.x);
        for (int i = 0; i < 4; i++) sum += other[i];
        if (args.bug != NO_BARRIER_BEFORE_OVERWRITING) cu_barrier();
    }
    args.y[blockIdx.x * THREADS + threadIdx.x] = sum;
}
extern "C" cudaError_t run_pipeline(const float *x, float *y, int blocks, int steps, int bug) {
    pipeline_args args = {x, y, steps, bug};
    return cu_launch(shim_pipeline, dim3((unsigned)blocks), THREADS, 2 * FLOATS * sizeof(float), NULL, args);
}

// ---- sums of rows, by warps, through static shared memory ----

enum rows_bug {
    LANE_MISSING = 1,
    LANE_ELSEWHERE,
    WARP_PAST_BARRIER,
    LANE_PAST_BARRIER,
    NO_BARRIER,
    NO_SYNCWARP,
    SAME_PLACE_FOR_ALL_BLOCKS,
};
struct rows_args {
    const float *x; // [blocks, THREADS]
    float *y;       // [blocks]: sum over all threads
    float *parts;   // [blocks, 32]
    int bug;
};

extern "C" __global__ void __launch_bounds__(THREADS) shim_rows(rows_args args) {
    __shared__ __align__(16) float of_warp[THREADS / 32], of_thread[THREADS];
    uint32_t t = threadIdx.x, lane = t % 32, warp = t / 32;
    of_thread[t] = args.x[blockIdx.x * THREADS + t];
    if (args.bug != NO_SYNCWARP) __syncwarp();
    float sum = of_thread[warp * 32 + 31 - lane];
    if (args.bug == LANE_ELSEWHERE && t == 37) sum += cu_shuffle_xor(sum, 16);
    else if (!(args.bug == LANE_MISSING && t == 37)) sum += cu_shuffle_xor(sum, 16);
    for (int mask = 8; mask > 0; mask /= 2) sum += cu_shuffle_xor(sum, mask);
    if (lane == 0) of_warp[warp] = sum;
    if (args.bug == WARP_PAST_BARRIER && warp == 1) return;
    if (!(args.bug == LANE_PAST_BARRIER && t == 37) && args.bug != NO_BARRIER) cu_barrier();
    float *part = args.parts + (args.bug == SAME_PLACE_FOR_ALL_BLOCKS ? 0 : blockIdx.x) * 32;
    if (t < 4) part[t] = of_warp[t];
    cu_barrier();
    if (t == 127) args.y[blockIdx.x] = part[0] + part[1] + part[2] + part[3];
}
extern "C" cudaError_t run_rows(const float *x, float *y, float *parts, int blocks, int bug) {
    rows_args args = {x, y, parts, bug};
    return cu_launch(shim_rows, dim3((unsigned)blocks), THREADS, 0, NULL, args);
}

// ---- addresses: y[i] = x[i], and one access that is wrong ----

enum address_bug {
    READ_PAST_END = 1,
    WRITE_PAST_END,
    READ_BEFORE,
    WRITE_BESIDE,
    READ_NULL,
    MISALIGNED_LOAD,
    MISALIGNED_COPY,
    COPY_TO_GLOBAL,
    COPY_PAST_END,
    PAST_DYNAMIC,
    BESIDE_DYNAMIC,
    PAST_STATIC,
    FULL_STACK,
    FOR_EVER,
};
struct address_args {
    const float *x;
    float *y;
    int n, bug;
};

static __device__ uint32_t deep(uint32_t depth, const volatile uint32_t *above) {
    volatile uint32_t here[64];
    here[depth % 64] = depth + above[0];
    return depth == 0 ? here[0] : deep(depth - 1, here) + here[depth % 64];
}

static __device__ void touch(const address_args &a, float *staged) {
    __shared__ float fixed[8];
    volatile float *y = a.y;
    int n = a.n, wrong = a.n + 7; // for PAST_STATIC: not to be known when it is compiled
    switch (a.bug) {
    case READ_PAST_END: y[0] = a.x[n + 63]; break;
    case WRITE_PAST_END: y[n + 63] = 1; break;
    case READ_BEFORE: y[0] = a.x[-1025]; break;
    case WRITE_BESIDE: y[n] = 1; break;
    case READ_NULL: y[0] = *(const volatile float *)(uintptr_t)(16 * (n - n)); break;
    case MISALIGNED_LOAD: y[0] = ((const float4 *)(a.x + 1))->w; break;
    case MISALIGNED_COPY: cu_copy16_async(staged, a.x + 1); break;
    case COPY_TO_GLOBAL: cu_copy16_async(a.y, a.x); break;
    case COPY_PAST_END: cu_copy16_async(staged, a.x + n); break;
    case PAST_DYNAMIC: ((volatile float *)staged)[32] = 1; break;
    case BESIDE_DYNAMIC: ((volatile float *)staged)[30] = 1; break;
    case PAST_STATIC: y[0] = fixed[wrong]; break;
    case FULL_STACK: y[0] = (float)deep(1u << 20, (const volatile uint32_t *)a.x); break;
    case FOR_EVER:
        for (;;) __syncwarp();
    }
}

extern "C" __global__ void shim_addresses(address_args args) {
    CU_DYNAMIC_SHARED(raw);
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < args.n) args.y[i] = args.x[i];
    if (args.bug == FOR_EVER || (args.bug && i == 33)) touch(args, (float *)raw);
}
extern "C" cudaError_t run_addresses(const float *x, float *y, int n, int bug) {
    address_args args = {x, y, n, bug};
    return cu_launch(shim_addresses, dim3((unsigned)(n + 31) / 32), 32, 120, NULL, args); // 30 floats, and 8 bytes beside them
}

// ---- who comes when, and what shared memory holds before anybody writes ----

struct order_args {
    uint32_t *next;   // how many came
    uint32_t *who;    // [2 * threads]: of all blocks; each comes twice, before and after a barrier
    uint32_t *shared; // [threads, 2]: what it found in static and in dynamic shared memory
};
extern "C" __global__ void shim_order(order_args args) {
    CU_DYNAMIC_SHARED(raw);
    __shared__ uint32_t fixed[THREADS];
    uint32_t t = threadIdx.x, me = blockIdx.x * THREADS + t;
    uint32_t *dynamic = (uint32_t *)raw;
    args.who[(*args.next)++] = me;
    args.shared[2 * me] = fixed[t];
    args.shared[2 * me + 1] = dynamic[t];
    fixed[t] = dynamic[t] = me;
    cu_barrier();
    args.who[(*args.next)++] = me;
}
extern "C" cudaError_t run_order(uint32_t *next, uint32_t *who, uint32_t *shared, int blocks) {
    order_args args = {next, who, shared};
    return cu_launch(shim_order, dim3((unsigned)blocks), THREADS, THREADS * sizeof(uint32_t), NULL, args);
}

// ---- instructions, one warp ----

struct instruction_args {
    const uint32_t *in; // [32, 8]
    uint32_t *out;      // [32, 8]
    int mask;
};

extern "C" __global__ void shim_instructions(instruction_args args) {
    const uint32_t *in = args.in + 8 * threadIdx.x;
    uint32_t *out = args.out + 8 * threadIdx.x;
    out[0] = cbq_as_u32(cu_shuffle_xor(cbq_as_f32(in[0]), args.mask));
    out[1] = cu_shuffle_up(in[1], (uint32_t)args.mask);
    out[2] = cu_permute(in[0], in[1], in[2]);
    out[3] = cu_pack_bf16(cbq_as_f32(in[3]), cbq_as_f32(in[4]));
    out[4] = cu_shuffle_xor_bits(in[1], args.mask);
    out[5] = cu_and_or(in[0], in[1], in[2]);
    out[6] = cu_fma_bf16x2(in[5], in[6], in[7]);
}
extern "C" cudaError_t run_instructions(const uint32_t *in, uint32_t *out, int mask) {
    instruction_args args = {in, out, mask};
    return cu_launch(shim_instructions, dim3(1), 32, 0, NULL, args);
}

struct mma_args {
    const uint32_t *a, *b; // [32, 4], [32, 2]
    float *c;              // [32, 4]
};
extern "C" __global__ void shim_mma(mma_args args) {
    cu_mma_bf16(args.c + 4 * threadIdx.x, args.a + 4 * threadIdx.x, args.b + 2 * threadIdx.x);
}
extern "C" cudaError_t run_mma(const uint32_t *a, const uint32_t *b, float *c) {
    mma_args args = {a, b, c};
    return cu_launch(shim_mma, dim3(1), 32, 0, NULL, args);
}

extern "C" __global__ void shim_mma_f16(mma_args args) {
    cu_mma_f16(args.c + 4 * threadIdx.x, args.a + 4 * threadIdx.x, args.b + 2 * threadIdx.x);
}
extern "C" cudaError_t run_mma_f16(const uint32_t *a, const uint32_t *b, float *c) {
    mma_args args = {a, b, c};
    return cu_launch(shim_mma_f16, dim3(1), 32, 0, NULL, args);
}

struct matrices_args {
    const uint4 *rows; // [32]: row i % 8 of matrix i / 8
    uint32_t *out;     // [32, 8]: as they are, then transposed
};
extern "C" __global__ void shim_matrices(matrices_args args) {
    __shared__ __align__(16) uint4 staged[32];
    staged[threadIdx.x] = args.rows[threadIdx.x];
    cu_barrier();
    cu_load_matrices(args.out + 8 * threadIdx.x, staged + threadIdx.x);
    cu_load_matrices_transposed(args.out + 8 * threadIdx.x + 4, staged + threadIdx.x);
}
extern "C" cudaError_t run_matrices(const uint4 *rows, uint32_t *out) {
    matrices_args args = {rows, out};
    return cu_launch(shim_matrices, dim3(1), 32, 0, NULL, args);
}

// ---- what a thread knows of itself ----

extern "C" __global__ void shim_indices(uint32_t *out) {
    uint32_t block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    uint32_t *mine = out + 6 * (block * blockDim.x + threadIdx.x);
    uint32_t values[6] = {blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, blockDim.x, gridDim.y};
    for (int i = 0; i < 6; i++) mine[i] = values[i];
}
extern "C" cudaError_t run_indices(uint32_t *out, unsigned x, unsigned y, unsigned z, unsigned threads) {
    return cu_launch(shim_indices, dim3(x, y, z), threads, 0, NULL, out);
}
extern "C" cudaError_t run_with_shared(size_t bytes, cudaStream_t stream) {
    return cu_launch(shim_indices, dim3(0), 32, bytes, stream, (uint32_t *)NULL);
}
extern "C" const void *kernel_of_indices(void) { return (const void *)shim_indices; }
