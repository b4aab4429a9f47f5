/* The neighbours of a code word are the rows of the grid at the nearest few distances (one, two or three different ones, the
   format says), by distance and then by row: the order decides between equals. A distance is the sum of squared differences
   of codes. Source: ggml (iq2xs_init_impl, iq3xs_init_impl). */
#include "neighbours.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "../tables/iq1_grid8.h"
#include "../tables/iq2_s_grid.h"
#include "../tables/iq2_xs_grid.h"
#include "../tables/iq2_xxs_grid.h"
#include "../tables/iq3_s_grid.h"
#include "../tables/iq3_xxs_grid.h"

enum { MAX_ROWS = 2048, MAX_HALVES = 256, MAX_SHELLS = 3, FARTHEST = 4 * 7 * 7, FAR = 255 };

typedef struct {
    const void *rows;
    int n, codes, bits;  /* rows, codes of a row, bits of a code */
    int n_codes;         /* different codes */
    int step, zero;      /* code = value / step + zero */
    int shells;          /* how many different distances count as near */
} grid_of_values;

static const grid_of_values grids[CBQ_N_GRIDS] = {
    [CBQ_GRID_IQ1] = {cbq_iq1_grid8, 2048, 8, 2, 3, 8, 1, 3},
    [CBQ_GRID_IQ2_XXS] = {cbq_iq2_xxs_grid, 256, 8, 2, 3, 17, 0, 2},
    [CBQ_GRID_IQ2_XS] = {cbq_iq2_xs_grid, 512, 8, 2, 3, 17, 0, 2},
    [CBQ_GRID_IQ2_S] = {cbq_iq2_s_grid, 1024, 8, 2, 3, 17, 0, 1},
    [CBQ_GRID_IQ3_XXS] = {cbq_iq3_xxs_grid, 256, 4, 3, 8, 8, 0, 2},
    [CBQ_GRID_IQ3_S] = {cbq_iq3_s_grid, 512, 4, 3, 8, 2, 0, 3},
};

/* What cbq_neighbours points into, while it is made. */
typedef struct {
    cbq_neighbours seen;
    int32_t *index, *first;
    uint16_t *count, *grid, *words, *rows;
    int64_t n, room; /* of words and rows */
} tables;

/* Distances are added up from those of the two halves of a word: by half and row. */
typedef struct {
    uint8_t low[MAX_HALVES][MAX_ROWS], high[MAX_HALVES][MAX_ROWS];
} half_distances;

static uint16_t word_of_row(const grid_of_values *g, int row) {
    const int8_t *values = (const int8_t *)g->rows + row * g->codes;
    unsigned word = 0;
    for (int i = 0; i < g->codes; i++) word |= (unsigned)(values[i] / g->step + g->zero) << g->bits * i;
    return (uint16_t)word;
}

static int has_all_codes(const grid_of_values *g, int half) {
    for (int i = 0; i < g->codes / 2; i++)
        if ((half >> g->bits * i & ((1 << g->bits) - 1)) >= g->n_codes) return 0;
    return 1;
}

static uint8_t half_distance(const grid_of_values *g, int a, int b) {
    const int mask = (1 << g->bits) - 1;
    int sum = 0;
    for (int i = 0; i < g->codes / 2; i++) {
        int difference = (a >> g->bits * i & mask) - (b >> g->bits * i & mask);
        sum += difference * difference;
    }
    return (uint8_t)sum;
}

static void fill_half_distances(half_distances *d, const grid_of_values *g, const uint16_t *grid) {
    const int half_bits = g->bits * g->codes / 2, halves = 1 << half_bits;
    for (int half = 0; half < halves; half++) {
        if (!has_all_codes(g, half)) continue;
        uint8_t to[MAX_HALVES];
        for (int other = 0; other < halves; other++) to[other] = half_distance(g, half, other);
        for (int row = 0; row < g->n; row++) {
            d->low[half][row] = to[grid[row] & (halves - 1)];
            d->high[half][row] = to[grid[row] >> half_bits];
        }
    }
}

/* The nearest distances, in order, to the rows of a word; FAR where there are no more. */
static void find_shells(const uint8_t *distance, int n, int wanted, uint8_t shells[MAX_SHELLS]) {
    int from = 0;
    for (int s = 0; s < wanted; s++) {
        uint8_t least = FAR;
        for (int row = 0; row < n; row++) { /* what is nearer than `from` wraps to more than the farthest */
            uint8_t d = (uint8_t)(distance[row] - from);
            least = d < least ? d : least;
        }
        shells[s] = from + least > FARTHEST ? FAR : (uint8_t)(from + least);
        from = shells[s] + 1;
    }
}

static int make_room(tables *t, int n) {
    if (t->n + n <= t->room) return 0;
    int64_t room = 2 * t->room + n;
    uint16_t *words = realloc(t->words, (size_t)room * sizeof(uint16_t));
    if (words) t->words = words;
    uint16_t *rows = realloc(t->rows, (size_t)room * sizeof(uint16_t));
    if (rows) t->rows = rows;
    if (!words || !rows) return -1;
    t->room = room;
    return 0;
}

static void put(tables *t, int64_t at, uint16_t row) {
    t->words[at] = t->grid[row];
    t->rows[at] = row;
}

/* The rows within a distance, in their order. */
static int find_near(const uint8_t *distance, int n, int within, uint16_t near[MAX_ROWS + 1]) {
    int count = 0;
    for (int row = 0; row < n; row++) {
        near[count] = (uint16_t)row; /* without a branch: the guesses would be wrong too often */
        count += distance[row] <= within;
    }
    return count;
}

static int add_neighbours(tables *t, const grid_of_values *g, int word, const uint8_t *distance) {
    uint8_t shells[MAX_SHELLS] = {0};
    uint16_t near[MAX_ROWS + 1];
    find_shells(distance, g->n, g->shells, shells);
    const int count = find_near(distance, g->n, shells[g->shells - 1], near);
    const int padded = (count + CBQ_NEIGHBOURS_PADDED_TO - 1) / CBQ_NEIGHBOURS_PADDED_TO * CBQ_NEIGHBOURS_PADDED_TO;
    if (make_room(t, padded)) return -1;
    int sizes[FAR + 1];
    int64_t next[FAR + 1]; /* by distance: where its next row goes */
    for (int s = 0; s < g->shells; s++) sizes[shells[s]] = 0;
    for (int i = 0; i < count; i++) sizes[distance[near[i]]]++;
    int64_t at = t->n;
    for (int s = 0; s < g->shells; s++) next[shells[s]] = at, at += sizes[shells[s]];
    for (int i = 0; i < count; i++) put(t, next[distance[near[i]]]++, near[i]);
    for (int i = count; i < padded; i++) put(t, t->n + i, t->rows[t->n]);
    t->first[word] = (int32_t)t->n;
    t->count[word] = (uint16_t)count;
    t->n += padded;
    return 0;
}

static int fill(tables *t, const grid_of_values *g, half_distances *d) {
    const int half_bits = g->bits * g->codes / 2, halves = 1 << half_bits;
    for (int i = 0; i < halves * halves; i++) t->index[i] = -1;
    for (int row = 0; row < g->n; row++) t->index[t->grid[row] = word_of_row(g, row)] = row;
    fill_half_distances(d, g, t->grid);
    for (int high = 0; high < halves; high++) {
        if (!has_all_codes(g, high)) continue;
        for (int low = 0; low < halves; low++) {
            const int word = high << half_bits | low;
            if (t->index[word] >= 0 || !has_all_codes(g, low)) continue;
            uint8_t distance[MAX_ROWS];
            for (int row = 0; row < g->n; row++) distance[row] = (uint8_t)(d->low[low][row] + d->high[high][row]);
            if (add_neighbours(t, g, word, distance)) return -1;
        }
    }
    return 0;
}

static void free_tables(tables *t) {
    free(t->index), free(t->first), free(t->count), free(t->grid), free(t->words), free(t->rows);
    free(t);
}

static tables *make(const grid_of_values *g) {
    const size_t n_words = (size_t)1 << g->bits * g->codes;
    half_distances *d = malloc(sizeof *d);
    tables *t = calloc(1, sizeof *t);
    if (!t) goto failed;
    t->index = malloc(n_words * sizeof(int32_t));
    t->first = calloc(n_words, sizeof(int32_t));
    t->count = calloc(n_words, sizeof(uint16_t));
    t->grid = malloc((size_t)g->n * sizeof(uint16_t));
    if (!d || !t->index || !t->first || !t->count || !t->grid || fill(t, g, d)) goto failed;
    t->seen = (cbq_neighbours){t->index, t->first, t->count, t->words, t->rows, t->grid};
    free(d);
    return t;
failed:
    if (t) free_tables(t);
    free(d);
    return NULL;
}

/* No lock: a child that is forked while another thread holds one could never take it. Threads that come at once each make
   the tables, and the first one's stay. */
const cbq_neighbours *cbq_neighbours_of(cbq_grid grid) {
    static _Atomic(tables *) made[CBQ_N_GRIDS];
    tables *t = atomic_load_explicit(&made[grid], memory_order_acquire);
    if (t) return &t->seen;
    tables *mine = make(&grids[grid]);
    if (!mine) return NULL;
    if (atomic_compare_exchange_strong(&made[grid], &t, mine)) return &mine->seen;
    free_tables(mine);
    return &t->seen;
}
