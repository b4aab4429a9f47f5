// The instructions that Hopper alone has (sm_90a): barriers in shared memory that count bytes, copies in bulk, products of four
// warps that run by themselves. Inline PTX as in instructions.cuh, and tests have a file of the same name too.
#pragma once
#include <instructions.cuh>

// Whether this is code for sm_90a, where they are. (1 for the host's compiler as well, which makes nothing of device code.)
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define CU_HOPPER 1
#else
#define CU_HOPPER 0
#endif

// A barrier of so many arrivals, 8 bytes of shared memory. It goes through phases: one ends when all have arrived and all bytes
// that were announced have landed, and the next one begins with the same number of arrivals.
static __device__ __forceinline__ void cu_mbarrier_init(uint64_t *barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(cu_shared_address(barrier)), "r"(arrivals) : "memory");
}
// What this thread wrote to shared memory is seen by copies in bulk and by products, once others have waited for this thread.
static __device__ __forceinline__ void cu_proxy_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

static __device__ __forceinline__ void cu_mbarrier_arrive(uint64_t *barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(cu_shared_address(barrier)) : "memory");
}
// The same, and announces bytes.
static __device__ __forceinline__ void cu_mbarrier_expect(uint64_t *barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(cu_shared_address(barrier)), "r"(bytes) : "memory");
}
// Until the phase of this parity has ended: 0 for the first, then 1, 0, ... The one before the first counts as ended.
static __device__ __forceinline__ void cu_mbarrier_wait(uint64_t *barrier, uint32_t parity) {
    uint32_t done;
    do {
        asm volatile("{\n.reg .pred done;\nmbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\nselp.u32 %0, 1, 0, done;\n}"
                     : "=r"(done)
                     : "r"(cu_shared_address(barrier)), "r"(parity)
                     : "memory");
    } while (!done);
}

// Bytes from global to shared memory, a multiple of 16, at multiples of 16. The barrier hears of them when they have landed.
static __device__ __forceinline__ void cu_copy_bulk(void *shared, const void *global, uint32_t bytes, uint64_t *barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(cu_shared_address(shared)),
                 "l"(global), "r"(bytes), "r"(cu_shared_address(barrier))
                 : "memory");
}

// Registers that a thread of these four warps may use from here on: all of them call it.
template <int N> static __device__ __forceinline__ void cu_fewer_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }
template <int N> static __device__ __forceinline__ void cu_more_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }

// A matrix in shared memory, for cu_wgmma_bf16: columns of 64 k in 128 bytes each, at a multiple of 1024; of the eight chunks of 16
// bytes of column c, number j lies at place j ^ c % 8 ("128-byte swizzling"; PTX ISA, "Matrix Descriptor Format" of wgmma: the address, and
// 1024 bytes from eight columns to the next, in units of 16; 1 in the two highest bits). Adding 2 i is the matrix from k = 16 i on.
static __device__ __forceinline__ uint64_t cu_matrix_of(const void *shared) {
    return 1ull << 62 | 64ull << 32 | 1ull << 16 | (cu_shared_address(shared) & 0x3ffff) >> 4;
}

// Before a group: registers that were written are written.
static __device__ __forceinline__ void cu_wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// The products since the last commit become a group.
static __device__ __forceinline__ void cu_wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// All groups but the newest N are done: what they read may be overwritten, and if N is 0 the sums are there.
template <int N> static __device__ __forceinline__ void cu_wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }

// Registers stay where they are up to here: products may still read (and write) them, which the compiler does not know.
static __device__ __forceinline__ void cu_hold(uint32_t r[4]) { asm volatile("" : "+r"(r[0]), "+r"(r[1]), "+r"(r[2]), "+r"(r[3])::"memory"); }
static __device__ __forceinline__ void cu_hold_sums(float r[4]) { asm volatile("" : "+f"(r[0]), "+f"(r[1]), "+f"(r[2]), "+f"(r[3])::"memory"); }

// Operands of the products: sums i and on, and their numbers.
#define SUMS_1(i) "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
#define SUMS_4(i) SUMS_1(i), SUMS_1(i + 1), SUMS_1(i + 2), SUMS_1(i + 3)
#define SUMS_16(i) SUMS_4(i), SUMS_4(i + 4), SUMS_4(i + 8), SUMS_4(i + 12)
#define TEN(t) "%" #t "0,%" #t "1,%" #t "2,%" #t "3,%" #t "4,%" #t "5,%" #t "6,%" #t "7,%" #t "8,%" #t "9,"
#define FIRST_64 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9," TEN(1) TEN(2) TEN(3) TEN(4) TEN(5) "%60,%61,%62,%63"
#define FIRST_128 FIRST_64 ",%64,%65,%66,%67,%68,%69," TEN(7) TEN(8) TEN(9) TEN(10) TEN(11) "%120,%121,%122,%123,%124,%125,%126,%127"
#define PRODUCT(n, sums, a, b, one) \
    "{\n.reg .pred add;\nsetp.ne.b32 add, " one ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" sums "}, {" a "}, " b ", add, 1, 1, 0;\n}"

// c[64, N] += a[64, 16] b[16, N] of four warps, bf16 in, float sums; b is in shared memory. Warp i of the four has rows 16 i .. 16 i + 15, and in
// those a lane holds of a, and of each eight columns of c, what it does for cu_mma_bf16. It goes on after the call.
template <int N> static __device__ __forceinline__ void cu_wgmma_bf16(float c[N / 8][4], const uint32_t a[4], uint64_t b) {
    static_assert(N == 128 || N == 256, "columns");
    if constexpr (N == 128)
        asm volatile(PRODUCT(128, FIRST_64, "%64, %65, %66, %67", "%68", "%69")
                     : SUMS_16(0)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1));
    else
        asm volatile(PRODUCT(256, FIRST_128, "%128, %129, %130, %131", "%132", "%133")
                     : SUMS_16(0), SUMS_16(16)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1));
}
#undef SUMS_1
#undef SUMS_4
#undef SUMS_16
#undef TEN
#undef FIRST_64
#undef FIRST_128
#undef PRODUCT
