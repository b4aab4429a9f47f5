/* Plain C: the readable form, on every machine, and what the others are compared with. */
#include "../word/scalar.h"
#include "../kernels/all.h"
#include "../dot/scalar.h"
#include "../kernels/int_product.h"

const cbq_kernels cbq_kernels_scalar = CBQ_KERNEL_TABLE;
const cbq_int_kernels cbq_int_scalar = CBQ_INT_TABLE;
