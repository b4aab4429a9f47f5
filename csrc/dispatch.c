#include "dispatch.h"

#include <stdatomic.h>
#include <stdio.h>

#include "cpu.h"
#include "isa/target.h"

#define AVX2_SET (CBQ_CPU_AVX2 | CBQ_CPU_FMA | CBQ_CPU_F16C)
#define VNNI_SET (AVX512_SET | CBQ_CPU_AVX512VNNI)
#define AVX512_SET (AVX2_SET | CBQ_CPU_AVX512F | CBQ_CPU_AVX512BW | CBQ_CPU_AVX512VL | CBQ_CPU_AVX512DQ | CBQ_CPU_AVX512VBMI | CBQ_CPU_BMI2)
#define I8MM_SET (CBQ_CPU_NEON | CBQ_CPU_DOTPROD | CBQ_CPU_I8MM)

/* What is one set for all levels of an instruction set. */
#define SETS(isa) &cbq_encoders_##isa, &cbq_codecs_##isa, &cbq_planes_##isa, &cbq_operators_##isa, &cbq_attention_##isa

const cbq_level cbq_levels[] = {
    {"scalar", 0, &cbq_kernels_scalar, "scalar", &cbq_int_scalar, NULL, SETS(scalar)},
#if CBQ_X86
    {"avx2", AVX2_SET, &cbq_kernels_avx2, "avx2", &cbq_int_avx2, NULL, SETS(avx2)},
    {"avxvnni", AVX2_SET | CBQ_CPU_AVX_VNNI, &cbq_kernels_avx2, "avx2", &cbq_int_avxvnni, NULL, SETS(avx2)},
    {"avx512", AVX512_SET, &cbq_kernels_avx512, "avx512", &cbq_int_avx512, NULL, SETS(avx512)},
    {"avx512vnni", VNNI_SET, &cbq_kernels_avx512, "avx512", &cbq_int_avx512vnni, NULL, SETS(avx512)},
    {"avx512bf16", VNNI_SET | CBQ_CPU_AVX512BF16, &cbq_kernels_avx512, "avx512", &cbq_int_avx512vnni, cbq_tile_bf16_avx512, SETS(avx512)},
#endif
#if CBQ_ARM
    {"neon", CBQ_CPU_NEON, &cbq_kernels_neon, "neon", &cbq_int_neon, NULL, SETS(neon)},
    {"neon_dotprod", CBQ_CPU_NEON | CBQ_CPU_DOTPROD, &cbq_kernels_neon, "neon", &cbq_int_neon_dotprod, NULL, SETS(neon)},
    {"neon_i8mm", I8MM_SET, &cbq_kernels_neon, "neon", &cbq_int_neon_dotprod, NULL, SETS(neon)},
    {"neon_bf16", I8MM_SET | CBQ_CPU_ARM_BF16, &cbq_kernels_neon, "neon", &cbq_int_neon_dotprod, cbq_tile_bf16_neon, SETS(neon)},
#endif
};
const int cbq_n_levels = (int)(sizeof cbq_levels / sizeof cbq_levels[0]);

int cbq_level_available(const cbq_level *level) { return (level->needs & ~cbq_cpu_features()) == 0; }

/* "scalar, avx2, .." of all levels, or of those that this machine can run. */
static void list_levels(int only_available, char *text, size_t size) {
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < cbq_n_levels && used < size; i++)
        if (!only_available || cbq_level_available(&cbq_levels[i]))
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "", cbq_levels[i].name);
}

const cbq_level *cbq_find_level(const char *name, cbq_status *st) {
    char names[200];
    for (int i = 0; i < cbq_n_levels; i++) {
        if (strcmp(cbq_levels[i].name, name) != 0) continue;
        if (cbq_level_available(&cbq_levels[i])) return &cbq_levels[i];
        list_levels(1, names, sizeof names);
        cbq_fail(st, CBQ_BAD_VALUE, "CBQUANT_ISA: this machine cannot run '%s'; it can run %s", name, names);
        return NULL;
    }
    list_levels(0, names, sizeof names);
    cbq_fail(st, CBQ_BAD_VALUE, "CBQUANT_ISA: expected one of %s, got '%.60s'", names, name);
    return NULL;
}

static const cbq_level *best_level(void) {
    const cbq_level *best = &cbq_levels[0];
    for (int i = 0; i < cbq_n_levels; i++)
        if (cbq_level_available(&cbq_levels[i])) best = &cbq_levels[i];
    return best;
}

static _Atomic(const cbq_level *) current; /* threads that race to fill it find the same level */

const cbq_level *cbq_current_level(void) {
    const cbq_level *level = atomic_load_explicit(&current, memory_order_acquire);
    if (level) return level;
    level = best_level();
    atomic_store_explicit(&current, level, memory_order_release);
    return level;
}

cbq_code cbq_use_level(const char *name, cbq_status *st) {
    const cbq_level *level = name ? cbq_find_level(name, st) : best_level();
    if (!level) return st->code;
    atomic_store_explicit(&current, level, memory_order_release);
    return CBQ_OK;
}
