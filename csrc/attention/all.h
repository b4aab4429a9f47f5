/* Every kernel of attention, and the table of them. Included by isa/attention/NAME.c after a file of word/ and one of lanes/. */
#pragma once
#include "absorb.h"
#include "attend.h"
#include "index.h"
#include "merge.h"
#include "top.h"

#define CBQ_ATTENTION_TABLE { \
    .exp = exp_array, .attend = attend, .merge = merge, .weighted_rows = weighted_rows, .index_scores = index_scores, \
    .scores_above = scores_above, .scores_to_order = scores_to_order, .count_from = count_from}
