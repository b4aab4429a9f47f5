#include "top.h"

#define SIGN 0x80000000u

/* Scores as integers (attention/top.h) have a total order: the larger first, then the lower index. Candidates are kept in the
   order of their indices. When room runs out, all but the k largest are dropped, and the k-th is the limit for what comes: an
   equal one that comes later has a higher index, so only larger ones are candidates. */

static int64_t room_for(int64_t k, int64_t n) {
    const int64_t room = 2 * k + 2 * CBQ_TOP_PIECE;
    return n < room ? n : room;
}

int64_t cbq_top_bytes(int64_t k, int64_t n) { return 8 * room_for(k, n) + 16 * k; }

void cbq_top_open(cbq_top *top, const cbq_attention *kernels, int64_t k, int64_t n, uint8_t *memory) {
    const int64_t room = room_for(k, n);
    *top = (cbq_top){.kernels = kernels, .k = k, .room = room, .sorted = (uint64_t *)(void *)memory};
    top->index = (int32_t *)(void *)(memory + 16 * k);
    top->order = top->index + room;
}

void cbq_top_guess(cbq_top *top, float limit) { top->limit = limit, top->limited = 1; }

/* The bits of the k-th largest are found from the top, by counting how many numbers are no less than what one more bit makes. The
   bits that all share are known. Where exactly k are no less than a number, the one below it tells them from the others just as
   well, and the rest of the bits need not be known. */
int32_t cbq_order_limit(const cbq_attention *kernels, const int32_t *order, int64_t n, int64_t k, int64_t *larger) {
    int32_t low = order[0], high = order[0];
    for (int64_t i = 1; i < n; i++) {
        low = order[i] < low ? order[i] : low;
        high = order[i] > high ? order[i] : high;
    }
    const uint32_t differ = (uint32_t)low ^ (uint32_t)high;
    int bit = differ ? 31 - __builtin_clz(differ) : -1;
    uint32_t limit = SIGN ^ (uint32_t)low; /* unsigned, in the same order */
    if (bit >= 0) limit &= ~(((1u << bit) - 1) | 1u << bit);
    for (; bit >= 0; bit--) {
        const uint32_t more = limit | 1u << bit;
        const int64_t count = kernels->count_from(order, n, (int32_t)(SIGN ^ more));
        if (count > k) limit = more;
        if (count == k) {
            *larger = k;
            return (int32_t)(SIGN ^ (more - 1));
        }
    }
    const int32_t found = (int32_t)(SIGN ^ limit);
    *larger = found == INT32_MAX ? 0 : kernels->count_from(order, n, found + 1);
    return found;
}

float cbq_score_of(int32_t order) {
    if (order == INT32_MIN) return cbq_as_f32(0x7fc00000u);
    return cbq_as_f32(order < 0 ? SIGN - (uint32_t)order : (uint32_t)order);
}

void cbq_top_shrink(cbq_top *top) {
    int64_t larger, kept = 0;
    if (top->count <= top->k) return;
    const int32_t limit = cbq_order_limit(top->kernels, top->order, top->count, top->k, &larger);
    int64_t wanted = top->k - larger; /* of those at the limit: the first ones */
    for (int64_t i = 0; i < top->count; i++) {
        const int32_t order = top->order[i];
        const int at_limit = order == limit, keep = order > limit || (at_limit && wanted > 0);
        top->index[kept] = top->index[i], top->order[kept] = order;
        wanted -= at_limit, kept += keep;
    }
    top->count = kept;
    cbq_top_guess(top, cbq_score_of(limit));
}

void cbq_top_feed(cbq_top *top, const float *scores, int64_t n, int32_t base) {
    for (int64_t at = 0; at < n; at += CBQ_TOP_PIECE) {
        int64_t part = n - at < CBQ_TOP_PIECE ? n - at : CBQ_TOP_PIECE;
        const int32_t first = base + (int32_t)at;
        if (top->count + part > top->room) cbq_top_shrink(top);
        int32_t *index = top->index + top->count, *order = top->order + top->count;
        if (top->limited) {
            part = top->kernels->scores_above(scores + at, part, top->limit, first, index);
            for (int64_t i = 0; i < part; i++) order[i] = (int32_t)cbq_as_u32(scores[index[i] - base]);
        } else {
            for (int64_t i = 0; i < part; i++) index[i] = first + (int32_t)i;
            memcpy(order, scores + at, (size_t)part * 4);
        }
        top->kernels->scores_to_order(order, part);
        top->count += part;
    }
}

void cbq_top_join(cbq_top *top, const int32_t *index, const int32_t *order, int64_t n) {
    for (int64_t at = 0; at < n; at += CBQ_TOP_PIECE) {
        int64_t part = n - at < CBQ_TOP_PIECE ? n - at : CBQ_TOP_PIECE;
        if (top->count + part > top->room) cbq_top_shrink(top);
        memcpy(top->index + top->count, index + at, (size_t)part * 4);
        memcpy(top->order + top->count, order + at, (size_t)part * 4);
        top->count += part;
    }
}

/* By bytes from the lowest. A byte that is the same in all needs no pass. */
uint64_t *cbq_sort_by_high(uint64_t *from, uint64_t *to, int64_t n) {
    int64_t counts[4][256] = {{0}};
    if (n == 0) return from;
    for (int64_t i = 0; i < n; i++)
        for (int b = 0; b < 4; b++) counts[b][from[i] >> (32 + 8 * b) & 255]++;
    for (int b = 0; b < 4; b++) {
        int64_t *count = counts[b], before = 0;
        const int shift = 32 + 8 * b;
        if (count[from[0] >> shift & 255] == n) continue;
        for (int i = 0; i < 256; i++) {
            int64_t here = count[i];
            count[i] = before;
            before += here;
        }
        for (int64_t i = 0; i < n; i++) to[count[from[i] >> shift & 255]++] = from[i];
        uint64_t *other = from;
        from = to, to = other;
    }
    return from;
}

void cbq_top_finish(cbq_top *top, int32_t *to) {
    const int64_t k = top->k;
    cbq_top_shrink(top);
    for (int64_t i = 0; i < k; i++) {
        uint32_t rank = (uint32_t)INT32_MAX - (uint32_t)top->order[i]; /* 0 for the largest */
        top->sorted[i] = (uint64_t)rank << 32 | (uint32_t)top->index[i];
    }
    const uint64_t *sorted = cbq_sort_by_high(top->sorted, top->sorted + k, k);
    for (int64_t i = 0; i < k; i++) to[i] = (int32_t)(uint32_t)sorted[i];
}
