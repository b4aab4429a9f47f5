#include "scratch.h"

#include <stdlib.h>

enum { LINE = 64 };

void *cbq_aligned_alloc(int64_t bytes) {
    void *p = NULL;
    if (bytes < 0 || bytes > PTRDIFF_MAX - LINE) return NULL;
    return posix_memalign(&p, LINE, (size_t)(bytes ? bytes : LINE)) ? NULL : p;
}

cbq_code cbq_scratch_open(cbq_scratch *s, int slots, int64_t slot_bytes, cbq_status *st) {
    s->slots = slots;
    s->slot_bytes = slot_bytes > 0 ? (slot_bytes + LINE - 1) / LINE * LINE : LINE; /* slots are told apart by their places */
    for (int i = 0; i < slots; i++) atomic_flag_clear(&s->taken[i]);
    s->memory = s->slot_bytes > PTRDIFF_MAX / slots ? NULL : cbq_aligned_alloc(slots * s->slot_bytes);
    if (!s->memory) return cbq_fail(st, CBQ_NO_MEMORY, "no memory for %d pieces of %lld bytes", slots, (long long)s->slot_bytes);
    return CBQ_OK;
}

void cbq_scratch_close(cbq_scratch *s) {
    free(s->memory);
    s->memory = NULL;
}

uint8_t *cbq_scratch_take(cbq_scratch *s) {
    for (int i = 0;; i = (i + 1) % s->slots)
        if (!atomic_flag_test_and_set_explicit(&s->taken[i], memory_order_acquire)) return s->memory + i * s->slot_bytes;
}

void cbq_scratch_give(cbq_scratch *s, uint8_t *slot) {
    atomic_flag_clear_explicit(&s->taken[(slot - s->memory) / s->slot_bytes], memory_order_release);
}
