/* Hammers the pool from several threads, for the thread sanitizer: jobs of every size at once, each checked for items
   that were left out or taken twice, decodes with the first choice of a level and the count of cores among them, and encodes
   with the first call of the tables of grids.
   Exit status 0, or 1 and a line on what went wrong; a data race is the sanitizer's to tell. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base.h"
#include "ops/dequant.h"
#include "ops/quantize.h"
#include "threads.h"

enum { CALLERS = 6, ROUNDS = 200, MOST_ITEMS = 4000, DECODES = 4, BLOCKS = 16384 + 3 };

static pthread_barrier_t start;
static atomic_int failures;
static int q8_0;
static uint8_t *blocks, *expected; /* q8_0, and what one thread decodes them to */
enum { BLOCK_BYTES = 34, OUT_BYTES = 128 };

static void fail(const char *what, int caller) {
    printf("caller %d: %s\n", caller, what);
    atomic_fetch_add(&failures, 1);
}

/* Plain, not atomic: two threads at one item are a race. */
static void count_item(void *context, int64_t begin, int64_t end) {
    int *counts = context;
    for (int64_t i = begin; i < end; i++) counts[i]++;
}

static void run_counting_jobs(int caller) {
    static int counts[CALLERS][MOST_ITEMS];
    unsigned seed = (unsigned)caller;
    for (int round = 0; round < ROUNDS; round++) {
        int n = rand_r(&seed) % MOST_ITEMS, grain = 1 + rand_r(&seed) % 500, threads = 1 + rand_r(&seed) % 6;
        memset(counts[caller], 0, sizeof counts[caller]);
        cbq_parallel(n, grain, threads, count_item, counts[caller]);
        for (int i = 0; i < MOST_ITEMS; i++)
            if (counts[caller][i] != (i < n)) return fail("an item was not done exactly once", caller);
    }
}

static int decode(uint8_t *out, int threads, cbq_status *st) {
    cbq_view from = {blocks, (int64_t)BLOCKS * BLOCK_BYTES};
    cbq_out to = {out, (int64_t)BLOCKS * OUT_BYTES};
    cbq_dequant_args a = {q8_0, CBQ_F32, threads, -1, cbq_current_level(), from, to};
    return cbq_dequant(&a, st);
}

static void run_decodes(int caller) {
    uint8_t *out = malloc((size_t)BLOCKS * OUT_BYTES);
    for (int round = 0; out && round < DECODES; round++) {
        cbq_status st = {CBQ_OK, ""};
        memset(out, 0x5a, (size_t)BLOCKS * OUT_BYTES);
        if (caller % 2) cbq_set_num_threads(2 + round % 2);
        if (decode(out, round % 2 ? caller + 1 : 0, &st)) fail(st.text, caller);
        else if (memcmp(out, expected, (size_t)BLOCKS * OUT_BYTES)) fail("a decode is wrong", caller);
    }
    if (!out) fail("no memory", caller);
    free(out);
}

/* Rows of what the blocks stand for; more than 2^16 elements, so that they are shared out. All callers must get the same. */
enum { ENCODE_K = 256, ENCODE_ROWS = 300 };
static _Atomic uint64_t encoded[2];

static void run_encodes(int caller) {
    static const char *const formats[] = {"iq2_xs", "q4_k"};
    static uint8_t out[CALLERS][ENCODE_ROWS * ENCODE_K];
    float importance[ENCODE_K];
    for (int i = 0; i < ENCODE_K; i++) importance[i] = 1;
    for (int f = 0; f < 2; f++) {
        cbq_status st = {CBQ_OK, ""};
        cbq_quantize_args a = {.format = cbq_find_format(formats[f]), .source = cbq_find_format("f32"), .threads = 3, .improve = 1,
                               .level = cbq_current_level(), .rows = ENCODE_ROWS, .k = ENCODE_K,
                               .x = {expected, (int64_t)ENCODE_ROWS * ENCODE_K * 4}, .importance = {(uint8_t *)importance, sizeof importance}};
        a.out = (cbq_out){out[caller], (int64_t)ENCODE_ROWS * cbq_formats[a.format].bytes};
        if (cbq_quantize(&a, &st)) return fail(st.text, caller);
        uint64_t hash = 1, none = 0;
        for (int64_t i = 0; i < a.out.bytes; i++) hash = (hash ^ out[caller][i]) * 0x100000001b3u;
        if (!atomic_compare_exchange_strong(&encoded[f], &none, hash) && none != hash) fail("encoders do not agree", caller);
    }
}

static void *caller_main(void *number) {
    int caller = *(int *)number;
    pthread_barrier_wait(&start);
    run_encodes(caller);
    run_decodes(caller);
    run_counting_jobs(caller);
    return NULL;
}

/* By hand, so that nothing of the library has run before the barrier falls: d = 1, codes to floats. */
static int make_blocks(void) {
    blocks = malloc((size_t)BLOCKS * BLOCK_BYTES);
    expected = malloc((size_t)BLOCKS * OUT_BYTES);
    if (!blocks || !expected) return -1;
    for (int b = 0; b < BLOCKS; b++) {
        memcpy(blocks + b * BLOCK_BYTES, "\x00\x3c", 2);
        for (int i = 0; i < 32; i++) {
            int8_t code = (int8_t)(b * 31 + i * 7);
            float value = code;
            blocks[b * BLOCK_BYTES + 2 + i] = (uint8_t)code;
            memcpy(expected + b * OUT_BYTES + 4 * i, &value, 4);
        }
    }
    return 0;
}

int main(void) {
    pthread_t threads[CALLERS];
    int numbers[CALLERS];
    q8_0 = cbq_find_format("q8_0");
    if (make_blocks()) return 1;
    pthread_barrier_init(&start, NULL, CALLERS);
    for (int i = 0; i < CALLERS; i++) {
        numbers[i] = i;
        if (pthread_create(&threads[i], NULL, caller_main, &numbers[i])) return 1;
    }
    for (int i = 0; i < CALLERS; i++) pthread_join(threads[i], NULL);
    printf("%d callers, %d jobs, %d decodes, ", CALLERS, CALLERS * ROUNDS, CALLERS * DECODES);
    printf("%d helper threads: %d failures\n", cbq_pool_size(), failures);
    free(blocks);
    free(expected);
    return failures ? 1 : 0;
}
