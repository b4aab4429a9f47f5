// The file of the same name in cuda/device, for kernels that run on the CPU. What each function does is said there; a test
// compares the lists.
#pragma once
#include <instructions.cuh>

#define CU_HOPPER 1

namespace shim {

void mbarrier_init(uint64_t *barrier, uint32_t arrivals, const char *file, int line);
void proxy_fence();
void mbarrier_arrive(uint64_t *barrier, uint32_t bytes, const char *name, const char *file, int line);
void mbarrier_wait(uint64_t *barrier, uint32_t parity, const char *file, int line);
void copy_bulk(void *shared, const void *global, uint32_t bytes, uint64_t *barrier, const char *file, int line);

void set_registers(unsigned count);

struct Product {
    float *c;
    const uint32_t *a;
    uint64_t b;
    int columns;
    const char *file;
    int line;
};
void wgmma_fence(void *const lanes[32]);
void wgmma_commit(void *const lanes[32]);
void wgmma_wait(unsigned groups_left);
void wgmma(void *const lanes[32]);

} // namespace shim

static __forceinline__ void cu_mbarrier_init(uint64_t *barrier, uint32_t arrivals, SHIM_WHERE) { shim::mbarrier_init(barrier, arrivals, file, line); }
static __forceinline__ void cu_proxy_fence() { shim::proxy_fence(); }
static __forceinline__ void cu_mbarrier_arrive(uint64_t *barrier, SHIM_WHERE) { shim::mbarrier_arrive(barrier, 0, "cu_mbarrier_arrive", file, line); }
static __forceinline__ void cu_mbarrier_expect(uint64_t *barrier, uint32_t bytes, SHIM_WHERE) {
    shim::mbarrier_arrive(barrier, bytes, "cu_mbarrier_expect", file, line);
}
static __forceinline__ void cu_mbarrier_wait(uint64_t *barrier, uint32_t parity, SHIM_WHERE) { shim::mbarrier_wait(barrier, parity, file, line); }
static __forceinline__ void cu_copy_bulk(void *shared, const void *global, uint32_t bytes, uint64_t *barrier, SHIM_WHERE) {
    shim::copy_bulk(shared, global, bytes, barrier, file, line);
}

template <int N> static __forceinline__ void cu_fewer_registers(SHIM_WHERE) {
    shim::meet_warp("cu_fewer_registers", file, line);
    shim::set_registers(N);
}
template <int N> static __forceinline__ void cu_more_registers(SHIM_WHERE) {
    shim::meet_warp("cu_more_registers", file, line);
    shim::set_registers(N);
}

static __forceinline__ uint64_t cu_matrix_of(const void *shared) {
    return 1ull << 62 | 64ull << 32 | 1ull << 16 | (cu_shared_address(shared) & 0x3ffff) >> 4;
}

static __forceinline__ void cu_wgmma_fence(SHIM_WHERE) { shim::meet("cu_wgmma_fence", file, line, NULL, shim::wgmma_fence); }
static __forceinline__ void cu_wgmma_commit(SHIM_WHERE) { shim::meet("cu_wgmma_commit", file, line, NULL, shim::wgmma_commit); }
template <int N> static __forceinline__ void cu_wgmma_wait(SHIM_WHERE) {
    shim::meet_warp("cu_wgmma_wait", file, line);
    shim::wgmma_wait(N);
}

static __forceinline__ void cu_hold(uint32_t r[4]) { (void)r; }
static __forceinline__ void cu_hold_sums(float r[4]) { (void)r; }

template <int N> static __forceinline__ void cu_wgmma_bf16(float c[N / 8][4], const uint32_t a[4], uint64_t b, SHIM_WHERE) {
    shim::Product mine = {c[0], a, b, N, file, line};
    shim::meet("cu_wgmma_bf16", file, line, &mine, shim::wgmma);
}
