/* The list of formats, as the module sees it. */
#pragma once
#include "host.h"
#include "kernels.h"
#include "registry.h"

/* The format of that tag; NULL with a ValueError. */
const cbq_format *cbq_cuda_format(int tag);

/* Blocks that become fragments: what whole tiles and units add to them does not overflow either. */
#define CBQ_FRAGMENTS_MAX_BYTES (CBQ_CUDA_MAX_BYTES / 1024)

/* Weights as (tag, experts, n, k): 0, with the bytes of their blocks, or -1 with an exception. */
int cbq_get_weights(PyObject *object, const char *name, cbq_cuda_weights *w, const cbq_format **format, uint64_t *nbytes);
/* Where they are, in fragments. */
int cbq_get_fragments(PyObject *module, PyObject *memory, PyObject *offset, const char *name, const cbq_cuda_weights *w, cbq_place *place);
