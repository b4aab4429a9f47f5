/* Groups side by side in lanes: X[i][lane] is element i of group `lane`. Most searches take two vectors of groups at a time,
   so that one's additions go on while the other's are under way. */
#pragma once

enum { CBQ_PAIR = 2 * CBQ_LANES };
#define CBQ_EACH_OF(g, n) CBQ_UNROLL_ALL for (int g = 0; g < (n); g++)

/* Groups of n elements, one after the other from x on, to n x vectors * CBQ_LANES floats. */
CBQ_FN void groups_to_lanes(const float *x, int n, int vectors, float *to) {
    for (int v = 0; v < vectors; v++) f_to_lanes(x + v * CBQ_LANES * n, n, n, to + v * CBQ_LANES, vectors * CBQ_LANES);
}
/* Back: n elements (whole vectors) of CBQ_PAIR groups. */
CBQ_FN void lanes_to_groups(const float *lanes, int n, float *to) {
    for (int i = 0; i < n; i += CBQ_LANES) f_to_lanes(lanes + i * CBQ_PAIR, CBQ_PAIR, CBQ_PAIR, to + i, n);
}
CBQ_FN F lanes_at(const float *to, int i, int vectors, int v) { return f_ld(to + (i * vectors + v) * CBQ_LANES); }

/* The sum over the n elements of each group, in order. */
CBQ_FN void sums_of_groups(const float *w, int n, int vectors, float *sums) {
    CBQ_EACH_OF(v, vectors) {
        F sum = f_zero();
        for (int i = 0; i < n; i++) sum = f_add(sum, lanes_at(w, i, vectors, v));
        f_st_f32(sums + v * CBQ_LANES, sum);
    }
}
/* From rows of `columns` values to their columns, one row to a lane. */
CBQ_FN void columns_to_lanes(const float *rows, int columns, float *to) {
    for (int j = 0; j < columns; j++)
        for (int lane = 0; lane < CBQ_LANES; lane++) to[j * CBQ_LANES + lane] = rows[lane * columns + j];
}
