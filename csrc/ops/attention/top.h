/* The k largest of scores that come a piece at a time: falling, equal ones by rising index, NaN last. */
#pragma once
#include "../../dispatch.h"

enum { CBQ_TOP_PIECE = 4096 }; /* scores that are looked at together at most */

typedef struct {
    const cbq_attention *kernels;
    int64_t k, room, count; /* candidates that there is room for, and that there are */
    float limit;            /* of what is still to come, only scores above this one are candidates, where `limited` */
    int limited;
    int32_t *index, *order;
    uint64_t *sorted;
} cbq_top;

/* Bytes of memory, aligned to 8, for the choice of k of n. */
int64_t cbq_top_bytes(int64_t k, int64_t n);
void cbq_top_open(cbq_top *top, const cbq_attention *kernels, int64_t k, int64_t n, uint8_t *memory);

/* Only scores above the limit are wanted: a guess that leaves too few is seen in the count. */
void cbq_top_guess(cbq_top *top, float limit);

/* n scores of rising indices from `base` on. */
void cbq_top_feed(cbq_top *top, const float *scores, int64_t n, int32_t base);

/* All candidates but the k largest go. */
void cbq_top_shrink(cbq_top *top);

/* n candidates of another choice, over higher indices. */
void cbq_top_join(cbq_top *top, const int32_t *index, const int32_t *order, int64_t n);

/* The chosen indices; at least k scores were fed. */
void cbq_top_finish(cbq_top *top, int32_t *to);

/* What tells the k largest of n integers of scores_to_order, n >= k >= 1: all that are larger and, in the order of their indices, as
   many of those that are equal as are wanting. How many are larger goes to `larger`. */
int32_t cbq_order_limit(const cbq_attention *kernels, const int32_t *order, int64_t n, int64_t k, int64_t *larger);

/* The score of such an integer; NaN where there is none, and any number is above that. */
float cbq_score_of(int32_t order);

/* n numbers by their upper 32 bits, rising; equal ones stay in their order. Both arrays are used, and one of them is returned. */
uint64_t *cbq_sort_by_high(uint64_t *from, uint64_t *to, int64_t n);
