/* Scratch memory of the threads of one call: as many equal, aligned slots as threads, taken and given back by the pieces
   of its work. */
#pragma once
#include <stdatomic.h>
#include <stdint.h>

#include "../status.h"
#include "../threads.h"

typedef struct {
    uint8_t *memory;
    int64_t slot_bytes;
    int slots;
    atomic_flag taken[CBQ_MAX_THREADS];
} cbq_scratch;

/* Pieces of a cbq_parallel that run at a time, at most: as many slots do. */
static inline int cbq_most_pieces(int64_t n, int64_t grain, int threads) {
    int64_t pieces = n / grain + (n % grain != 0);
    return pieces < 1 ? 1 : pieces < threads ? (int)pieces : threads;
}

/* To be closed with cbq_scratch_close, also where it failed. */
cbq_code cbq_scratch_open(cbq_scratch *s, int slots, int64_t slot_bytes, cbq_status *st);
void cbq_scratch_close(cbq_scratch *s);

/* There is always one: no more pieces run at a time than the call has threads. */
uint8_t *cbq_scratch_take(cbq_scratch *s);
void cbq_scratch_give(cbq_scratch *s, uint8_t *slot);

/* Memory aligned to a cache line, or NULL; for free(). */
void *cbq_aligned_alloc(int64_t bytes);
