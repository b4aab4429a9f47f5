/* The choice of an instruction set at run time. */
#pragma once
#include "attention/attention.h"
#include "codecs/codecs.h"
#include "encode/encode.h"
#include "kernels/kernels.h"
#include "operators/operators.h"
#include "planes/planes.h"
#include "status.h"

typedef struct {
    const char *name;
    uint32_t needs; /* CBQ_CPU_* */
    const cbq_kernels *kernels;
    const char *kernels_name;    /* levels that bring nothing of their own to decoding share the kernels of a lower one */
    const cbq_int_kernels *ints; /* for the panels of `kernels` */
    cbq_tile_fn *tile_bf16;      /* NULL where bf16 has no instructions */
    const cbq_encoders *encoders;
    const cbq_codecs *codecs;
    const cbq_plane_kernels *planes;
    const cbq_operators *operators;
    const cbq_attention *attention;
} cbq_level;

extern const cbq_level cbq_levels[]; /* of this build, weakest first */
extern const int cbq_n_levels;

int cbq_level_available(const cbq_level *level);

/* The named level; NULL and a status where it is unknown or this machine cannot run it. */
const cbq_level *cbq_find_level(const char *name, cbq_status *st);

/* The level in use: that of the last cbq_use_level, else the best that this machine can run. A NULL name is the best. */
const cbq_level *cbq_current_level(void);
cbq_code cbq_use_level(const char *name, cbq_status *st);
