/* For the formats whose codes come in rows of a grid: which words of codes are on it, and which rows are near the others. */
#pragma once
#include <stdint.h>

/* A code word is the codes of a row side by side, the first in the lowest bits: 8 codes of 2 bits, or 4 codes of 3 bits.
   The tables have an entry for every word; where a word holds a code that the format does not have (3 of 2 bits), index is -1
   and count is 0. */
typedef struct {
    const int32_t *index;  /* of a word: its row of the grid, or -1 */
    const int32_t *first;  /* of a word that is not on the grid: where its neighbours begin in `words` and `rows` */
    const uint16_t *count; /* how many it has */
    const uint16_t *words; /* code words of the neighbours, each list padded to a multiple of 16 with its first one */
    const uint16_t *rows;  /* the same as rows of the grid */
    const uint16_t *grid;  /* the code word of each row */
} cbq_neighbours;

enum { CBQ_NEIGHBOURS_PADDED_TO = 16 };

typedef enum {
    CBQ_GRID_IQ1,
    CBQ_GRID_IQ2_XXS,
    CBQ_GRID_IQ2_XS,
    CBQ_GRID_IQ2_S,
    CBQ_GRID_IQ3_XXS,
    CBQ_GRID_IQ3_S,
    CBQ_N_GRIDS
} cbq_grid;

#if defined(__GNUC__)
#pragma GCC visibility push(hidden)
#endif
/* Made at the first call, by as many threads as come at once; kept for good. NULL where there is no memory. */
const cbq_neighbours *cbq_neighbours_of(cbq_grid grid);
#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
