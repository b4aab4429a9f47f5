/* What the processor and the operating system offer. */
#pragma once
#include <stdint.h>

enum {
    CBQ_CPU_AVX2 = 1 << 0,
    CBQ_CPU_FMA = 1 << 1,
    CBQ_CPU_F16C = 1 << 2,
    CBQ_CPU_AVX_VNNI = 1 << 3,
    CBQ_CPU_AVX512F = 1 << 4,
    CBQ_CPU_AVX512BW = 1 << 5,
    CBQ_CPU_AVX512VL = 1 << 6,
    CBQ_CPU_AVX512DQ = 1 << 7,
    CBQ_CPU_AVX512VBMI = 1 << 8,
    CBQ_CPU_AVX512VNNI = 1 << 9,
    CBQ_CPU_AVX512BF16 = 1 << 10,
    CBQ_CPU_BMI2 = 1 << 11,
    CBQ_CPU_NEON = 1 << 16,
    CBQ_CPU_DOTPROD = 1 << 17,
    CBQ_CPU_I8MM = 1 << 18,
    CBQ_CPU_ARM_BF16 = 1 << 19,
};

/* The registers of cpuid that matter, and XCR0 (0 where OSXSAVE is off). */
typedef struct {
    uint32_t leaf1_ecx, leaf7_ebx, leaf7_ecx, leaf7_1_eax;
    uint64_t xcr0;
} cbq_x86_id;

/* Features that both the cpu has and the operating system saves. Apart from the reading, so that tests can ask about
   machines that are not there. */
uint32_t cbq_x86_features(cbq_x86_id id);

/* Features of this machine. */
uint32_t cbq_cpu_features(void);

/* Bytes of the last-level cache, or 0 where it is not known. */
int64_t cbq_last_cache_bytes(void);
