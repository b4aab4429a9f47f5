/* Arrays of the operators of attention. */
#pragma once
#include "../../array.h"
#include "../../dispatch.h"
#include "../../view.h"

/* Does an array have this shape, and does what lies along its last axis lie side by side? */
cbq_code cbq_check_array(const cbq_array *a, const char *name, int ndim, const int64_t *shape, cbq_status *st);

/* Are these int64 [rows], each 0 to n? */
cbq_code cbq_check_lengths(cbq_view lengths, int64_t rows, int64_t n, cbq_status *st);

/* Row i of the first axis (and row j of the second one) as float32, times `scale`. */
void cbq_row_to_floats(const cbq_array *a, int64_t i, int64_t j, const cbq_level *level, float scale, float *to);
