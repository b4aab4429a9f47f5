/* The k largest of rows of scores, which may be made as they are looked at. */
#pragma once
#include "../../dispatch.h"
#include "top.h"

typedef struct {
    const cbq_level *level;
    int64_t rows, n, k;
    const int64_t *lengths; /* scores of each row that count, and then -1 follows where they are fewer than k; or NULL: all, and k <= n */
    int parts;           /* that a row is cut into, each chosen from by itself */
    int64_t room_bytes;  /* memory for `scores`, a multiple of 64 */
    const void *context;
    /* At most CBQ_TOP_PIECE scores of a row, in `room` or elsewhere. */
    const float *(*scores)(const void *context, int64_t row, int64_t begin, int64_t n, uint8_t *room);
    int in_memory; /* `scores` gives any number of them at once and for nothing: they are float32 in memory, and aligned */
    int32_t *out; /* rows of k */
} cbq_choice;

cbq_code cbq_choose(const cbq_choice *choice, int threads, cbq_status *st);
