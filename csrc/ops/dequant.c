#include "dequant.h"

#include <stdatomic.h>

#include "../cpu.h"
#include "check.h"

enum { GRAIN = 1 << 16 }; /* elements that one thread takes at a time */

/* A piece of the output on its way past the cache: one block of the largest format in float32. So few lines fit the store
   buffer, and the next tile is decoded while they drain. On Sapphire Rapids, as shares of a streaming fill with one
   thread: 1 KiB 0.93 to 1.0 over the formats, 2 KiB 0.80 to 0.97, 16 KiB 0.78. */
enum { TILE_BYTES = 1024, LINE = 64 };

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

/* Blocks of the tiles to come, into the first-level cache: streaming stores hold the buffers that a miss would wait for.
   Worth 2 to 5 % for formats of much more than 4 bits; other distances and the second level were no better. */
enum { AHEAD = 512 };

/* Through a tile, whose lines are those of the output: streaming stores want whole lines, and an output may begin
   anywhere in one. What is left of a tile's last line waits at the front of the next tile. */
static void stream_range(void *context, int64_t begin, int64_t end) {
    const task *t = context;
    const int64_t tile_blocks = TILE_BYTES / t->out_bytes;
    uint8_t tile[TILE_BYTES + LINE] __attribute__((aligned(LINE)));
    uint8_t *y = t->out + begin * t->out_bytes;
    int64_t skip = (int64_t)((uintptr_t)y % LINE), held = skip; /* the first line's bytes up to `skip` are not ours */
    uint8_t *line = y - skip;
    for (int64_t b = begin; b < end; b += tile_blocks) {
        int64_t n = end - b < tile_blocks ? end - b : tile_blocks;
        cbq_prefetch((uintptr_t)t->blocks + (uintptr_t)(b * t->block_bytes) + AHEAD, n * t->block_bytes);
        t->decode(t->blocks + b * t->block_bytes, tile + held, n);
        held += n * t->out_bytes;
        int64_t whole = held - held % LINE;
        if (whole == 0) continue;
        int64_t done = 0;
        if (skip) {
            memcpy(line + skip, tile + skip, (size_t)(LINE - skip));
            skip = 0;
            done = LINE;
        }
        t->stream_copy(line + done, tile + done, whole - done);
        memcpy(tile, tile + whole, LINE);
        line += whole;
        held -= whole;
    }
    memcpy(line + skip, tile + skip, (size_t)(held - skip));
    /* Streaming stores are weakly ordered; the full fence of each target orders them too. One a piece: one a tile would
       drain them before the next is decoded, at a third of the speed. */
    atomic_thread_fence(memory_order_seq_cst);
}

static int should_stream(const cbq_dequant_args *a, int threads, int64_t block_bytes) {
    if (block_bytes > TILE_BYTES) return 0;
    if (a->stream >= 0) return a->stream;
    const cbq_kernels *k = a->level->kernels;
    int64_t from = k->stream_from ? k->stream_from : 2 * cbq_last_cache_bytes();
    return threads <= k->stream_threads && from > 0 && a->out.bytes > from;
}

cbq_code cbq_dequant(const cbq_dequant_args *a, cbq_status *st) {
    const cbq_format *f = &cbq_formats[a->format];
    const int64_t size = a->dtype == CBQ_F32 ? 4 : 2;
    int64_t n = 0;
    if (cbq_count_blocks(f, a->blocks, &n, st)) return st->code;
    if (a->out.bytes % (f->elements * size) || a->out.bytes / (f->elements * size) != n)
        return cbq_fail(st, CBQ_BAD_VALUE, "out: expected %lld bytes for %lld blocks of %s, got %lld", (long long)(n * f->elements * size),
                        (long long)n, f->name, (long long)a->out.bytes);
    if (cbq_overlap(a->blocks, a->out)) return cbq_fail(st, CBQ_BAD_VALUE, "out: expected memory of its own, it overlaps buf");

    /* Only a large call asks how many there are: that is a system call. */
    int threads = n * f->elements < CBQ_DEQUANT_MIN_PARALLEL ? 1 : cbq_resolve_threads(a->threads);
    task t = {.decode = a->level->kernels->to_float[a->format][a->dtype],
              .stream_copy = a->level->kernels->stream_copy,
              .blocks = a->blocks.data,
              .out = a->out.data,
              .block_bytes = f->bytes,
              .out_bytes = f->elements * size};
    cbq_parallel(n, GRAIN / f->elements, threads, should_stream(a, threads, t.out_bytes) ? stream_range : decode_range, &t);
    return CBQ_OK;
}
