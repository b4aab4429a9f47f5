/* Memory that belongs to the caller. */
#pragma once
#include <stdint.h>

typedef struct {
    const uint8_t *data;
    int64_t bytes;
} cbq_view;

typedef struct {
    uint8_t *data;
    int64_t bytes;
} cbq_out;

/* Do the two share a byte? Addresses are compared as integers: they may belong to different objects. */
static inline int cbq_overlap(cbq_view a, cbq_out b) {
    uintptr_t a0 = (uintptr_t)a.data, b0 = (uintptr_t)b.data;
    return a.bytes > 0 && b.bytes > 0 && a0 < b0 + (uintptr_t)b.bytes && b0 < a0 + (uintptr_t)a.bytes;
}
