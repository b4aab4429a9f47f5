// Hopper's instructions as they should not be used, for the shim's own tests.
#include <instructions_sm90.cuh>
#include <launch.cuh>

enum hopper_bug { NO_BUG, OVERWRITTEN, MISALIGNED, ODD_SIZE, TO_GLOBAL, TOO_MANY, NO_WAIT, OTHER_MATRICES, MALFORMED, NOT_SHARED, NOT_DONE };

struct hopper_args {
    const uint8_t *x;
    float *y;
    int bug;
};

// A matrix of 128 columns by 64 k of x, times rows of ones: sums of sixteen k.
extern "C" __global__ void shim_hopper(hopper_args args) {
    CU_DYNAMIC_SHARED(shared);
    uint8_t *x = shared + (0u - cu_shared_address(shared)) % 1024;
    uint64_t *barrier = (uint64_t *)(x + 128 * 128);
    int bug = args.bug;
    if (threadIdx.x == 0) {
        cu_mbarrier_init(barrier, 1);
        cu_proxy_fence();
        if (bug == OVERWRITTEN) *barrier = 0;
        uint32_t bytes = bug == ODD_SIZE ? 128 * 128 - 8 : 128 * 128;
        cu_mbarrier_expect(barrier, bytes);
        if (bug == TOO_MANY) cu_mbarrier_arrive(barrier);
        cu_copy_bulk(bug == TO_GLOBAL ? (uint8_t *)args.y : x, args.x + (bug == MISALIGNED ? 8 : 0), bytes, barrier);
    }
    cu_barrier();
    if (bug == NO_WAIT) return;
    cu_mbarrier_wait(barrier, 0);
    uint32_t a[4] = {0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80};
    float c[16][4] = {};
    uint64_t matrix = cu_matrix_of(x);
    if (bug == OTHER_MATRICES && threadIdx.x >= 96) matrix += 2;
    if (bug == MALFORMED) matrix |= 1ull << 50;
    if (bug == NOT_SHARED) matrix = cu_matrix_of(x + 1024);
    cu_wgmma_fence();
    cu_wgmma_bf16<128>(c, a, matrix);
    cu_wgmma_commit();
    if (bug == NOT_DONE) return;
    cu_wgmma_wait<0>();
    for (int j = 0; j < 16; j++)
        for (int i = 0; i < 4; i++) {
            uint32_t lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4 + i / 2 * 8;
            args.y[row * 128 + 8 * j + 2 * (lane % 4) + i % 2] = c[j][i];
        }
}

extern "C" cudaError_t run_hopper(const uint8_t *x, float *y, int bug) {
    hopper_args args = {x, y, bug};
    return cu_launch(shim_hopper, dim3(1), 128, 128 * 128 + 1024 + 8, NULL, args);
}
