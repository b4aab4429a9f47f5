/* Plain C: the readable form, on every machine, and what the others are compared with. */
#include "../word/scalar.h"
#include "../kernels/to_float.h"

const cbq_kernels cbq_kernels_scalar = CBQ_KERNEL_TABLE;
