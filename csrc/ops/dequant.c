#include "dequant.h"

#include "../cpu.h"
#include "check.h"

/* Elements that one thread takes at a time, and below which a call stays on the caller's thread: waking a thread takes
   20 to 50 microseconds, in which one core decodes some 200 000 elements. */
enum { GRAIN = 1 << 16, MIN_PARALLEL = 1 << 19 };

/* A piece of the output that stays in the first-level cache on its way to memory. */
enum { TILE_BYTES = 16384 };

typedef struct {
    cbq_to_float_fn *decode;
    void (*stream_copy)(uint8_t *dst, const uint8_t *src, int64_t bytes);
    const uint8_t *blocks;
    uint8_t *out;
    int64_t block_bytes, out_bytes; /* of a block */
} task;

static void decode_range(void *context, int64_t begin, int64_t end) {
    const task *t = context;
    t->decode(t->blocks + begin * t->block_bytes, t->out + begin * t->out_bytes, end - begin);
}

/* Through a tile: streaming stores want 64-byte lines, and blocks of an unaligned output would not keep to them. */
static void stream_range(void *context, int64_t begin, int64_t end) {
    const task *t = context;
    const int64_t tile_blocks = TILE_BYTES / t->out_bytes;
    uint8_t tile[TILE_BYTES] __attribute__((aligned(64)));
    for (int64_t b = begin; b < end; b += tile_blocks) {
        int64_t n = end - b < tile_blocks ? end - b : tile_blocks, bytes = n * t->out_bytes;
        uint8_t *y = t->out + b * t->out_bytes;
        int64_t head = (int64_t)(-(uintptr_t)y & 63);
        if (head > bytes) head = bytes;
        int64_t body = (bytes - head) & ~(int64_t)63;
        t->decode(t->blocks + b * t->block_bytes, tile, n);
        memcpy(y, tile, (size_t)head);
        t->stream_copy(y + head, tile + head, body);
        memcpy(y + head + body, tile + head + body, (size_t)(bytes - head - body));
    }
}

/* Measured: streaming pays only for a single thread and outputs well past the last cache (benchmarks/dequant). */
static int should_stream(const cbq_dequant_args *a, int threads) {
    if (a->stream >= 0) return a->stream;
    int64_t cache = cbq_last_cache_bytes();
    return threads == 1 && cache > 0 && a->out.bytes > 2 * cache;
}

cbq_code cbq_dequant(const cbq_dequant_args *a, cbq_status *st) {
    const cbq_format *f = &cbq_formats[a->format];
    const int64_t size = a->dtype == CBQ_F32 ? 4 : 2;
    int64_t n = 0;
    int threads;
    if (cbq_count_blocks(f, a->blocks, &n, st) || cbq_resolve_threads(a->threads, &threads, st)) return st->code;
    if (a->out.bytes % (f->elements * size) || a->out.bytes / (f->elements * size) != n)
        return cbq_fail(st, CBQ_BAD_VALUE, "out: expected %lld bytes for %lld blocks of %s, got %lld", (long long)(n * f->elements * size),
                        (long long)n, f->name, (long long)a->out.bytes);
    if (cbq_overlap(a->blocks, a->out)) return cbq_fail(st, CBQ_BAD_VALUE, "out: expected memory of its own, it overlaps buf");

    if (n * f->elements < MIN_PARALLEL) threads = 1;
    task t = {.decode = a->level->kernels->to_float[a->format][a->dtype],
              .stream_copy = a->level->kernels->stream_copy,
              .blocks = a->blocks.data,
              .out = a->out.data,
              .block_bytes = f->bytes,
              .out_bytes = f->elements * size};
    cbq_parallel(n, GRAIN / f->elements, threads, should_stream(a, threads) ? stream_range : decode_range, &t);
    return CBQ_OK;
}
