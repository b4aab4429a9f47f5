/* The choice of an instruction set at run time. */
#pragma once
#include "kernels/kernels.h"
#include "status.h"

typedef struct {
    const char *name;
    uint32_t needs; /* CBQ_CPU_* */
    const cbq_kernels *kernels;
    const char *kernels_name; /* levels that bring nothing of their own yet share the kernels of a lower one */
} cbq_level;

extern const cbq_level cbq_levels[]; /* of this build, weakest first */
extern const int cbq_n_levels;

int cbq_level_available(const cbq_level *level);

/* The named level; NULL and a status where it is unknown or this machine cannot run it. */
const cbq_level *cbq_find_level(const char *name, cbq_status *st);

/* The level in use: CBQUANT_ISA where it is set, else the best. Chosen at the first call; an error is not remembered. */
const cbq_level *cbq_current_level(cbq_status *st);
