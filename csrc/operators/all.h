/* Every operator that works element by element, and the table of them. Included by isa/operators/NAME.c after a file of word/ and
   one of lanes/. */
#pragma once
#include <stddef.h>

#include "add.h"
#include "convert.h"
#include "mix.h"
#include "operators.h"
#include "pool.h"
#include "rope.h"
#include "router.h"
#include "sinkhorn.h"
#include "swiglu.h"

#define CBQ_OPERATOR_TABLE { \
    .widen = {NULL, widen_f16, widen_bf16}, .narrow = {narrow_f32, narrow_f16, narrow_bf16}, \
    .add = CBQ_MIX_ROW(add), \
    .collapse = {CBQ_MIX_ROW(collapse), CBQ_MIX_ROW(collapse_along)}, \
    .expand = {CBQ_MIX_ROW(expand), CBQ_MIX_ROW(expand_along)}, \
    .sinkhorn = sinkhorn, \
    .pool = pool, .pool_weighted = pool_weighted, .pool_end = pool_end, .softmax = softmax, \
    .rope = {{rope_split_f32, rope_split_f16, rope_split_bf16}, {rope_neighbours_f32, rope_neighbours_f16, rope_neighbours_bf16}}, \
    .score = score, .choose = choose, .swiglu = swiglu}
