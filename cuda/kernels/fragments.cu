// Products with weights in fragments, of the formats that have them: the kernels of matmul.cu with another layout.
//
// Not yet run on a GPU: tests run it with threads on the CPU, and the PTX that nvcc makes of it in an interpreter.
#include "in_fragments.cuh"
#include "products.h"

#define KERNELS(f, ...) PRODUCT_KERNELS(f##_fragments, in_fragments<f##_fragments>)
CBQ_FRAGMENTS(KERNELS)

#define ROW(f, ...) PRODUCT_ROW(f##_fragments::tag, ROWS, f##_fragments::unit, f##_fragments::unit_bytes, f##_fragments, in_fragments<f##_fragments>)
static const product_row rows[] = {CBQ_FRAGMENTS(ROW)};

product_rows cbq_products_of_fragments() { return {rows, sizeof rows / sizeof *rows}; }
