// The file of the same name in cuda/device, for kernels that run on the CPU. What each function does is said there; a test
// compares the lists.
#pragma once
#include <cuda_runtime.h>
#include <stdint.h>
#include <string.h>

namespace shim {

void *dynamic_shared();
uint32_t shared_address(const void *p);
void copy_async(void *shared, const void *global, const char *file, int line);
void commit();
void wait(unsigned groups_left);

// A collective: each lane gives a struct, and the last of the warp to come works it out for all 32.
void meet(const char *name, const char *file, int line, void *mine, void (*work_out)(void *const lanes[32]));

struct Shuffle {
    float value;
    int mask;
    float result;
};
struct ShuffleUp {
    uint32_t value, below, result;
};
struct Mma {
    float *c;
    const uint32_t *a, *b;
};
struct Matrices {
    uint32_t *r;
    const void *row;
};
void shuffle_xor(void *const lanes[32]);
void shuffle_up(void *const lanes[32]);
void mma_bf16(void *const lanes[32]);
void mma_f16(void *const lanes[32]);
void load_matrices(void *const lanes[32]);
void load_matrices_transposed(void *const lanes[32]);
void check_row(const void *row, const char *name, const char *file, int line);
uint32_t pack_bf16(float low, float high);
uint32_t fma_bf16x2(uint32_t a, uint32_t b, uint32_t c);

} // namespace shim

#define CU_DYNAMIC_SHARED(name) uint8_t *const name = (uint8_t *)shim::dynamic_shared()

static __forceinline__ uint32_t cu_shared_address(const void *p) { return shim::shared_address(p); }
static __forceinline__ void cu_copy16_async(void *shared, const void *global, SHIM_WHERE) { shim::copy_async(shared, global, file, line); }
static __forceinline__ void cu_commit() { shim::commit(); }
template <int N> static __forceinline__ void cu_wait() { shim::wait(N); }

static __forceinline__ void cu_barrier(SHIM_WHERE) { shim::barrier("cu_barrier", file, line); }

static __forceinline__ float cu_shuffle_xor(float v, int mask, SHIM_WHERE) {
    shim::Shuffle mine = {v, mask, 0};
    shim::meet("cu_shuffle_xor", file, line, &mine, shim::shuffle_xor);
    return mine.result;
}
static __forceinline__ uint32_t cu_shuffle_xor_bits(uint32_t v, int mask, SHIM_WHERE) {
    shim::Shuffle mine = {0, mask, 0};
    memcpy(&mine.value, &v, 4);
    shim::meet("cu_shuffle_xor_bits", file, line, &mine, shim::shuffle_xor);
    memcpy(&v, &mine.result, 4);
    return v;
}
static __forceinline__ uint32_t cu_shuffle_up(uint32_t v, uint32_t below, SHIM_WHERE) {
    shim::ShuffleUp mine = {v, below, 0};
    shim::meet("cu_shuffle_up", file, line, &mine, shim::shuffle_up);
    return mine.result;
}

static __forceinline__ uint32_t cu_permute(uint32_t a, uint32_t b, uint32_t selector) {
    uint64_t bytes = (uint64_t)b << 32 | a;
    uint32_t result = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t nibble = selector >> 4 * i & 15, byte = (uint32_t)(bytes >> 8 * (nibble & 7) & 255);
        result |= (nibble & 8 ? (byte & 128 ? 255u : 0u) : byte) << 8 * i;
    }
    return result;
}
static __forceinline__ uint32_t cu_and_or(uint32_t a, uint32_t b, uint32_t c) { return (a & b) | c; }
static __forceinline__ uint32_t cu_pack_bf16(float low, float high) { return shim::pack_bf16(low, high); }
static __forceinline__ uint32_t cu_fma_bf16x2(uint32_t a, uint32_t b, uint32_t c) { return shim::fma_bf16x2(a, b, c); }

static __forceinline__ void cu_mma_bf16(float c[4], const uint32_t a[4], const uint32_t b[2], SHIM_WHERE) {
    shim::Mma mine = {c, a, b};
    shim::meet("cu_mma_bf16", file, line, &mine, shim::mma_bf16);
}
static __forceinline__ void cu_mma_f16(float c[4], const uint32_t a[4], const uint32_t b[2], SHIM_WHERE) {
    shim::Mma mine = {c, a, b};
    shim::meet("cu_mma_f16", file, line, &mine, shim::mma_f16);
}
static __forceinline__ void cu_load_matrices(uint32_t r[4], const void *row, SHIM_WHERE) {
    shim::check_row(row, "cu_load_matrices", file, line);
    shim::Matrices mine = {r, row};
    shim::meet("cu_load_matrices", file, line, &mine, shim::load_matrices);
}
static __forceinline__ void cu_load_matrices_transposed(uint32_t r[4], const void *row, SHIM_WHERE) {
    shim::check_row(row, "cu_load_matrices_transposed", file, line);
    shim::Matrices mine = {r, row};
    shim::meet("cu_load_matrices_transposed", file, line, &mine, shim::load_matrices_transposed);
}
