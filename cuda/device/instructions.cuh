// The instructions of the device that C++ has no name for: all inline PTX of the project is in this file. Tests build
// the kernels with g++ too, and then read a file of the same name that does the same with threads on the CPU.
#pragma once
#include <cuda_runtime.h>
#include <stdint.h>

// Shared memory whose size the launch chooses. One array to a kernel: two would be the same memory.
#define CU_DYNAMIC_SHARED(name) extern __shared__ __align__(128) uint8_t name[]

static __device__ __forceinline__ uint32_t cu_shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

// 16 bytes from global to shared memory, past the first cache. They have landed when cu_wait says so.
static __device__ __forceinline__ void cu_copy16_async(void *shared, const void *global) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(cu_shared_address(shared)), "l"(global) : "memory");
}
// The copies of this thread since the last commit become a group.
static __device__ __forceinline__ void cu_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// All groups of this thread but the newest N have landed. Others see the bytes after a barrier.
template <int N> static __device__ __forceinline__ void cu_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

static __device__ __forceinline__ void cu_barrier() { __syncthreads(); }
static __device__ __forceinline__ float cu_shuffle_xor(float v, int mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }
static __device__ __forceinline__ uint32_t cu_shuffle_xor_bits(uint32_t v, int mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }
// The value of the lane `below` lanes below; the lowest ones keep their own.
static __device__ __forceinline__ uint32_t cu_shuffle_up(uint32_t v, uint32_t below) { return __shfl_up_sync(0xffffffffu, v, below); }

// Each of the four bytes of the result is one of the eight bytes of b:a, chosen by a nibble of the lower half of `selector`; from 8 up,
// it is eight times the sign of byte nibble - 8. (__byte_perm spends an instruction on never doing that.)
static __device__ __forceinline__ uint32_t cu_permute(uint32_t a, uint32_t b, uint32_t selector) {
    uint32_t r;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(selector));
    return r;
}

// (a & b) | c in one instruction, also where b and c are constants: ptxas makes two of such.
static __device__ __forceinline__ uint32_t cu_and_or(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t r;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}

// Two floats as bf16, rounded to nearest even: `low` in the lower half.
static __device__ __forceinline__ uint32_t cu_pack_bf16(float low, float high) {
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

// a * b + c of two pairs of bf16, each rounded once; subnormal numbers stay what they are.
static __device__ __forceinline__ uint32_t cu_fma_bf16x2(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t pair;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(pair) : "r"(a), "r"(b), "r"(c));
    return pair;
}

// c[16, 8] += a[16, 16] b[16, 8], bf16 in, float sums. With g = lane / 4 and q = lane % 4, a lane holds
//   a: rows g, g + 8, g, g + 8 (of columns 2q, 2q + 1; the last two of 2q + 8, 2q + 9)
//   b: rows 2q, 2q + 1 and 2q + 8, 2q + 9, of column g
//   c: row g, columns 2q and 2q + 1; row g + 8, the same columns
// (PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type".)
static __device__ __forceinline__ void cu_mma_bf16(float c[4], const uint32_t a[4], const uint32_t b[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// The same of f16.
static __device__ __forceinline__ void cu_mma_f16(float c[4], const uint32_t a[4], const uint32_t b[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Four 8 x 8 matrices of halves: lanes 8 i .. 8 i + 7 give the addresses of the rows of matrix i, each of 16 bytes at a multiple of
// 16. A lane gets of each row lane / 4, columns 2 (lane % 4) and the next; transposed: column lane / 4, rows 2 (lane % 4) and the next.
static __device__ __forceinline__ void cu_load_matrices(uint32_t r[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(cu_shared_address(row))
                 : "memory");
}
static __device__ __forceinline__ void cu_load_matrices_transposed(uint32_t r[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(cu_shared_address(row))
                 : "memory");
}
