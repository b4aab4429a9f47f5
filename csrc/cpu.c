#include "cpu.h"

#include <stdatomic.h>
#include <unistd.h>

/* Bit numbers: Intel SDM volume 2, CPUID; volume 1, 13.3 (XCR0). */
enum { XCR0_AVX = 0x6, XCR0_AVX512 = 0xe6 }; /* xmm and ymm; and the mask and zmm registers too */

static int bit(uint32_t word, int n) { return word >> n & 1; }

uint32_t cbq_x86_features(cbq_x86_id id) {
    uint32_t f = 0;
    int avx = bit(id.leaf1_ecx, 27) && bit(id.leaf1_ecx, 28) && (id.xcr0 & XCR0_AVX) == XCR0_AVX;
    if (!avx) return 0;
    if (bit(id.leaf7_ebx, 5)) f |= CBQ_CPU_AVX2;
    if (bit(id.leaf1_ecx, 12)) f |= CBQ_CPU_FMA;
    if (bit(id.leaf1_ecx, 29)) f |= CBQ_CPU_F16C;
    if (bit(id.leaf7_ebx, 8)) f |= CBQ_CPU_BMI2;
    if (bit(id.leaf7_1_eax, 4)) f |= CBQ_CPU_AVX_VNNI;
    if ((id.xcr0 & XCR0_AVX512) != XCR0_AVX512 || !bit(id.leaf7_ebx, 16)) return f;
    f |= CBQ_CPU_AVX512F;
    if (bit(id.leaf7_ebx, 17)) f |= CBQ_CPU_AVX512DQ;
    if (bit(id.leaf7_ebx, 30)) f |= CBQ_CPU_AVX512BW;
    if (bit(id.leaf7_ebx, 31)) f |= CBQ_CPU_AVX512VL;
    if (bit(id.leaf7_ecx, 1)) f |= CBQ_CPU_AVX512VBMI;
    if (bit(id.leaf7_ecx, 11)) f |= CBQ_CPU_AVX512VNNI;
    if (bit(id.leaf7_1_eax, 5)) f |= CBQ_CPU_AVX512BF16;
    return f;
}

#if defined(__x86_64__)
#include <cpuid.h>

static uint64_t read_xcr0(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low | (uint64_t)high << 32;
}

static uint32_t machine_features(void) {
    cbq_x86_id id = {0, 0, 0, 0, 0};
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
    id.leaf1_ecx = c;
    if (bit(c, 27)) id.xcr0 = read_xcr0(); /* OSXSAVE: without it xgetbv faults */
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
        uint32_t subleaves = a;
        id.leaf7_ebx = b;
        id.leaf7_ecx = c;
        if (subleaves >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) id.leaf7_1_eax = a;
    }
    return cbq_x86_features(id);
}

/* Deterministic cache parameters: Intel's leaf 4; AMD's 0x8000001d has the same fields. Zero where there is no such leaf. */
static int64_t last_cache_of_leaf(uint32_t leaf) {
    uint32_t a, b, c, d, last_level = 0;
    int64_t bytes = 0;
    for (uint32_t i = 0; i < 16 && __get_cpuid_count(leaf, i, &a, &b, &c, &d) && (a & 31) != 0; i++) {
        uint32_t level = a >> 5 & 7;
        if (level < last_level) continue;
        last_level = level;
        bytes = (int64_t)((b >> 22) + 1) * ((b >> 12 & 1023) + 1) * ((b & 4095) + 1) * ((int64_t)c + 1);
    }
    return bytes;
}
/* Not sysconf: glibc adds up the caches of all chiplets of an AMD processor (384 MiB where a core sees 32). */
static int64_t machine_last_cache(void) {
    uint32_t a, b, c, d;
    int64_t bytes = last_cache_of_leaf(4);
    if (bytes == 0 && __get_cpuid(0x80000001, &a, &b, &c, &d) && bit(c, 22)) bytes = last_cache_of_leaf(0x8000001d);
    return bytes;
}
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
/* Bit numbers of the kernel's hwcap.h, written out because old headers lack them. */
static uint32_t machine_features(void) {
    unsigned long hwcap = getauxval(AT_HWCAP), hwcap2 = getauxval(AT_HWCAP2);
    uint32_t f = CBQ_CPU_NEON;
    if (hwcap >> 20 & 1) f |= CBQ_CPU_DOTPROD;
    if (hwcap2 >> 13 & 1) f |= CBQ_CPU_I8MM;
    if (hwcap2 >> 14 & 1) f |= CBQ_CPU_ARM_BF16;
    return f;
}
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
static int has(const char *name) {
    int value = 0;
    size_t size = sizeof value;
    return sysctlbyname(name, &value, &size, 0, 0) == 0 && value;
}
static uint32_t machine_features(void) {
    uint32_t f = CBQ_CPU_NEON;
    if (has("hw.optional.arm.FEAT_DotProd")) f |= CBQ_CPU_DOTPROD;
    if (has("hw.optional.arm.FEAT_I8MM")) f |= CBQ_CPU_I8MM;
    if (has("hw.optional.arm.FEAT_BF16")) f |= CBQ_CPU_ARM_BF16;
    return f;
}
#elif defined(__aarch64__)
static uint32_t machine_features(void) { return CBQ_CPU_NEON; }
#else
static uint32_t machine_features(void) { return 0; }
#endif

/* Both answers are kept: cpuid leaves a virtual machine, and asking took longer than decoding 100 000 elements. Threads
   that race here write the same value. */

uint32_t cbq_cpu_features(void) {
#if defined(CBQ_EMULATE)
    return ~0u; /* every instruction is there, in software */
#else
    static atomic_llong known = -1;
    if (atomic_load_explicit(&known, memory_order_relaxed) < 0) atomic_store_explicit(&known, machine_features(), memory_order_relaxed);
    return (uint32_t)atomic_load_explicit(&known, memory_order_relaxed);
#endif
}

static int64_t last_cache_bytes(void) {
#if defined(__x86_64__)
    int64_t bytes = machine_last_cache();
    if (bytes > 0) return bytes;
#endif
#if defined(_SC_LEVEL3_CACHE_SIZE)
    long l3 = sysconf(_SC_LEVEL3_CACHE_SIZE), l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return l3 > 0 ? l3 : l2 > 0 ? l2 : 0;
#else
    return 0;
#endif
}

int64_t cbq_last_cache_bytes(void) {
    static atomic_llong known = -1;
    if (atomic_load_explicit(&known, memory_order_relaxed) < 0) atomic_store_explicit(&known, last_cache_bytes(), memory_order_relaxed);
    return atomic_load_explicit(&known, memory_order_relaxed);
}
