#include "write_floats.h"

#include <stdatomic.h>

#include "../cpu.h"
#include "../threads.h"

enum { GRAIN = 1 << 16 }; /* elements that one thread takes at a time, at least */

/* A piece of the output on its way past the cache: one block of the largest format in float32. So few lines fit the store
   buffer, and the next tile is decoded while they drain. On Sapphire Rapids, as shares of a streaming fill with one
   thread: 1 KiB 0.93 to 1.0 over the formats, 2 KiB 0.80 to 0.97, 16 KiB 0.78. */
enum { TILE_BYTES = 1024, LINE = 64 };

static void decode(const cbq_float_job *t, cbq_cursor *cursor, int64_t begin, int64_t n, uint8_t *y) {
    if (t->decode_at) t->decode_at(t->context, cursor, begin, n, y);
    else t->decode(t->blocks + begin * t->block_bytes, y, n);
}

static void decode_range(void *context, int64_t begin, int64_t end) {
    const cbq_float_job *t = context;
    cbq_cursor cursor;
    cbq_drop_scales(&cursor);
    decode(t, &cursor, begin, end - begin, t->out + begin * t->out_bytes);
}

/* Through the cache, into memory that it does not hold: what waits for lines of y leaves few lines of the blocks on their way, so they
   are asked for early. One thread, 64 MiB of new memory on Zen 5, in times of a fill, without and with it: q5_1 1.10 and 1.02, q8_0
   1.10 and 1.07, nvfp4 and iq1_m alike; steps of 4 KiB cost those two 5 percent. */
enum { FAR_BYTES = 4 << 20, STEP_BYTES = 16 << 10, STEP_AHEAD = 8 << 10 };

static void decode_far_range(void *context, int64_t begin, int64_t end) {
    const cbq_float_job *t = context;
    const int64_t step = STEP_BYTES / t->out_bytes;
    cbq_cursor cursor;
    cbq_drop_scales(&cursor);
    for (int64_t b = begin; b < end; b += step) {
        int64_t n = end - b < step ? end - b : step;
        cbq_prefetch((uintptr_t)t->blocks + (uintptr_t)(b * t->block_bytes) + STEP_AHEAD, n * t->block_bytes);
        decode(t, &cursor, b, n, t->out + b * t->out_bytes);
    }
}

/* Blocks of the tiles to come, into the first-level cache: streaming stores hold the buffers that a miss would wait for.
   Worth 2 to 5 % for formats of much more than 4 bits; other distances and the second level were no better. */
enum { AHEAD = 512 };

/* Through a tile, whose lines are those of the output: streaming stores want whole lines, and an output may begin
   anywhere in one. What is left of a tile's last line waits at the front of the next tile. */
static void stream_range(void *context, int64_t begin, int64_t end) {
    const cbq_float_job *t = context;
    const int64_t tile_blocks = TILE_BYTES / t->out_bytes;
    uint8_t tile[TILE_BYTES + LINE] __attribute__((aligned(LINE)));
    cbq_cursor cursor;
    cbq_drop_scales(&cursor);
    uint8_t *y = t->out + begin * t->out_bytes;
    int64_t skip = (int64_t)((uintptr_t)y % LINE), held = skip; /* the first line's bytes up to `skip` are not ours */
    uint8_t *line = y - skip;
    for (int64_t b = begin; b < end; b += tile_blocks) {
        int64_t n = end - b < tile_blocks ? end - b : tile_blocks;
        cbq_prefetch((uintptr_t)t->blocks + (uintptr_t)(b * t->block_bytes) + AHEAD, n * t->block_bytes);
        decode(t, &cursor, b, n, tile + held);
        held += n * t->out_bytes;
        int64_t whole = held - held % LINE;
        if (whole == 0) continue;
        int64_t done = 0;
        if (skip) {
            memcpy(line + skip, tile + skip, (size_t)(LINE - skip));
            skip = 0;
            done = LINE;
        }
        t->kernels->stream_copy(line + done, tile + done, whole - done);
        memcpy(tile, tile + whole, LINE);
        line += whole;
        held -= whole;
    }
    memcpy(line + skip, tile + skip, (size_t)(held - skip));
    /* Streaming stores are weakly ordered; the full fence of each target orders them too. One a piece: one a tile would
       drain them before the next is decoded, at a third of the speed. */
    atomic_thread_fence(memory_order_seq_cst);
}

/* A last cache of no more than this belongs to the cores that write, and what half of it holds is written faster through it: Zen 5,
   32 MiB, GB/s of q4_0 and q8_0 with one thread past and through the cache: 8 MiB 36 and 41, 35 and 41; 16 MiB 29 and 17, 33 and 28.
   A larger one is that of a whole server, and slower than its memory's streams (word/avx512.h). */
enum { NEAR_CACHE = 64 << 20 };

int cbq_should_stream(const cbq_kernels *k, int64_t bytes, int threads, int stream) {
    if (stream >= 0) return stream;
    int64_t cache = cbq_last_cache_bytes();
    int64_t from = !k->stream_from ? 2 * cache : cache > 0 && cache <= NEAR_CACHE ? cache / 2 : k->stream_from;
    return threads <= k->stream_threads && from > 0 && bytes >= from;
}

void cbq_write_floats(cbq_float_job *job, int64_t n, int elements, int threads, int stream) {
    int past = job->out_bytes <= TILE_BYTES && cbq_should_stream(job->kernels, n * job->out_bytes, threads, stream);
    int far = job->out_bytes <= STEP_BYTES && n * job->out_bytes > FAR_BYTES;
    cbq_parallel(n, GRAIN / elements, threads, past ? stream_range : far ? decode_far_range : decode_range, job);
}
