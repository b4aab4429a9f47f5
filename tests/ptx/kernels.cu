/* Small kernels for the interpreter's own tests: each uses one thing that nvcc may emit. */
#include <stdint.h>

extern "C" __global__ void saxpy(float a, const float *__restrict__ x, float *__restrict__ y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}

/* 32 x 32 tiles through shared memory; -DNO_SYNC leaves the barrier out. */
extern "C" __global__ void transpose(const uint32_t *x, uint32_t *y, int rows, int columns) {
    __shared__ uint32_t tile[32][33];
    int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
    if (row < rows && column < columns) tile[threadIdx.y][threadIdx.x] = x[row * columns + column];
#ifndef NO_SYNC
    __syncthreads();
#endif
    int to_column = blockIdx.y * 32 + threadIdx.x, to_row = blockIdx.x * 32 + threadIdx.y;
    if (to_row < columns && to_column < rows) y[to_row * rows + to_column] = tile[threadIdx.x][threadIdx.y];
}

/* One sum a block: shuffles in a warp, shared memory between warps. */
extern "C" __global__ void block_sum(const int *x, int *sums) {
    __shared__ int of_warp[32];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, v = x[blockIdx.x * blockDim.x + threadIdx.x];
    for (int m = 16; m; m >>= 1) v += __shfl_xor_sync(0xffffffffu, v, m);
    if (lane == 0) of_warp[warp] = v;
    __syncthreads();
    if (warp == 0) {
        v = lane < blockDim.x / 32 ? of_warp[lane] : 0;
        for (int m = 16; m; m >>= 1) v += __shfl_down_sync(0xffffffffu, v, m);
        if (lane == 0) sums[blockIdx.x] = v;
    }
}

static __device__ __forceinline__ uint32_t shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

static __device__ __forceinline__ void copy16(void *to, const void *from, uint32_t used) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(used) : "memory");
}

/* y[i] = x[i] + x[its neighbour across the block], chunk by chunk, the next chunk on its way meanwhile. -DNO_WAIT reads
   what has not arrived; -DNO_SYNC_AFTER lets the next copy overwrite what is still read. */
extern "C" __global__ void double_buffer(const uint32_t *x, uint32_t *y, int n, int chunks) {
    extern __shared__ __align__(16) uint32_t buffer[];
    int t = threadIdx.x, chunk = 4 * blockDim.x;
    for (int k = 0; k <= chunks; k++) {
        if (k < chunks) {
            int i = k * chunk + 4 * t, left = n - i;
            copy16(buffer + (k & 1) * chunk + 4 * t, x + i, left >= 4 ? 16 : left > 0 ? 4 * left : 0);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
        if (k == 0) continue;
#ifndef NO_WAIT
        asm volatile("cp.async.wait_group 1;" ::: "memory");
#endif
        __syncthreads();
        const uint32_t *now = buffer + ((k - 1) & 1) * chunk;
        for (int j = t; j < chunk; j += blockDim.x) {
            int i = (k - 1) * chunk + j;
            if (i < n) y[i] = now[j] + now[chunk - 1 - j];
        }
#ifndef NO_SYNC_AFTER
        __syncthreads();
#endif
    }
}

/* y[16, 8] = a[16, 16] b[16, 8], bf16 and row-major, one warp a tile: b through ldmatrix.trans. */
extern "C" __global__ void matrix_tile(const uint4 *a, const uint4 *b, float *y) {
    __shared__ uint4 left[32], right[16];
    int lane = threadIdx.x;
    left[lane] = a[blockIdx.x * 32 + lane];
    if (lane < 16) right[lane] = b[blockIdx.x * 16 + lane];
    __syncwarp();
    uint32_t ra[4], rb[2];
    float c[4] = {0, 0, 0, 0};
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3])
                 : "r"(shared_address(left + 2 * (lane & 15) + (lane >> 4))) : "memory");
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(rb[0]), "=r"(rb[1]) : "r"(shared_address(right + (lane & 15))) : "memory");
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]));
    float *at = y + blockIdx.x * 128 + lane / 4 * 8 + lane % 4 * 2;
    at[0] = c[0], at[1] = c[1], at[64] = c[2], at[65] = c[3];
}

static __device__ const uint64_t grid_table[4] = {0x0807060504030201ull, 0xfffefdfcfbfaf9f8ull, 0x8000000000000000ull, 42};
static __device__ const float float_table[3] = {1.5f, -0.0f, 1e-40f};
static __constant__ int16_t constant_table[5] = {-1, 2, -32768};

extern "C" __global__ void table_lookup(const uint8_t *index, uint64_t *grid, float *floats, int *constants) {
    int i = threadIdx.x;
    grid[i] = grid_table[index[i] & 3];
    floats[i] = float_table[index[i] % 3];
    constants[i] = constant_table[index[i] % 5];
}

/* An array with run-time indices lives in local memory; a function that is not inlined gets its address. */
static __device__ __noinline__ uint32_t rotate(uint32_t *array, int by) {
    uint32_t first = array[by & 7];
    array[by & 7] = by;
    return first * 3;
}

extern "C" __global__ void local_array(const uint32_t *x, const int *by, uint32_t *y) {
    uint32_t array[8];
    int i = threadIdx.x;
    for (int k = 0; k < 8; k++) array[k] = x[8 * i + k];
    uint32_t first = by[i] > 20 ? array[by[i] & 7] : rotate(array, by[i]);
    for (int k = 0; k < 8; k++) y[8 * i + k] = array[(k + by[i]) & 7] + first;
}

/* Eight values packed in two ways into one 16-byte store. Compilers were seen to lose stores where the choice between
   `low` and `high` hangs on a 0/1 loop variable of an unrolled loop: here both halves are written out. */
static __device__ __forceinline__ void split_nibbles(uint32_t q, uint32_t *low, uint32_t *high) {
    uint32_t l = q & 0x0f0f0f0fu, h = q >> 4 & 0x0f0f0f0fu;
    low[0] = __byte_perm(l, 0, 0x4140), low[1] = __byte_perm(l, 0, 0x4342);
    high[0] = __byte_perm(h, 0, 0x4140), high[1] = __byte_perm(h, 0, 0x4342);
}

extern "C" __global__ void unpack_nibbles(const uint32_t *q, uint16_t *y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t low[4], high[4];
    split_nibbles(q[2 * i], low, high);
    split_nibbles(q[2 * i + 1], low + 2, high + 2);
    *(uint4 *)(y + 16 * i) = make_uint4(low[0], low[1], low[2], low[3]);
    *(uint4 *)(y + 16 * i + 8) = make_uint4(high[0], high[1], high[2], high[3]);
}

/* Planted: the last thread of a block stores half of its values, in the way of a lost store. */
extern "C" __global__ void loses_stores(const uint32_t *x, uint32_t *y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[2 * i] = x[2 * i];
    if (threadIdx.x + 1 < blockDim.x) y[2 * i + 1] = x[2 * i + 1];
}
