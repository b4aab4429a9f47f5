/* Lists of positions: what an indexer chose, and the last ones. */
#pragma once
#include "../../status.h"
#include "../../view.h"

typedef struct {
    int64_t rows, chosen; /* lists, and positions chosen in each */
    cbq_view topk;        /* int64 [rows, chosen]: positions, -1 for none */
    cbq_view n, window;   /* int64 [rows]: positions there are for each list, and how many of the last are in it */
    cbq_out out;          /* int32 [rows, room]: rising, then -1 */
    int64_t room;
    cbq_out counts;       /* int64 [rows]: positions of each list; where one is more than `room`, nothing is written to `out` */
} cbq_gather_args;

cbq_code cbq_gather_list(const cbq_gather_args *args, cbq_status *st);
