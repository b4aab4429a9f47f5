// Rows of y sorted by expert, on the device: nothing of it comes back to the host. Sorting is stable, so that the same ids
// give the same tiles.
#pragma once
#include "store.cuh"
#include "work.cuh"

#include <launch.cuh>

struct route_args {
    const int32_t *ids;
    int32_t *counts, *first, *tiles, *order; // [experts], [experts + 1], [experts + 1], [rows]
    uint8_t *y;
    uint64_t y_stride, rows;
    uint32_t experts, n, tokens;
    int y_dtype;
};

// Sums of a value of each thread, over the threads of this CTA below this one and over all.
CBQ_FN uint32_t sum_below(uint32_t v, uint32_t *all) {
    __shared__ uint32_t of_warp[THREADS / 32];
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, sum = v;
#pragma unroll
    for (uint32_t d = 1; d < 32; d *= 2) {
        uint32_t below = cu_shuffle_up(sum, d);
        if (lane >= d) sum += below;
    }
    if (lane == 31) of_warp[warp] = sum;
    cu_barrier();
    uint32_t before = 0;
    *all = 0;
    for (uint32_t i = 0; i < THREADS / 32; i++) {
        if (i < warp) before += of_warp[i];
        *all += of_warp[i];
    }
    cu_barrier();
    return before + sum - v;
}

// One CTA to an expert.
CBQ_FN void count_expert(const route_args &a) {
    uint32_t mine = 0, all;
    for (uint64_t i = threadIdx.x; i < a.rows; i += THREADS) mine += a.ids[i] == (int32_t)blockIdx.x;
    sum_below(mine, &all);
    if (threadIdx.x == 0) a.counts[blockIdx.x] = (int32_t)all;
}

CBQ_FN uint32_t tiles_of(const route_args &a, uint32_t expert) { return ((uint32_t)a.counts[expert] + a.tokens - 1) / a.tokens; }

CBQ_FN void order_expert(const route_args &a) {
    uint32_t expert = blockIdx.x, rows = 0, tiles = 0, first, first_tile;
    for (uint32_t e = threadIdx.x; e < expert; e += THREADS) {
        rows += (uint32_t)a.counts[e];
        tiles += tiles_of(a, e);
    }
    sum_below(rows, &first);
    sum_below(tiles, &first_tile);
    if (threadIdx.x == 0) {
        a.first[expert] = (int32_t)first;
        a.tiles[expert] = (int32_t)first_tile;
        if (expert == a.experts - 1) {
            a.first[expert + 1] = (int32_t)first + a.counts[expert];
            a.tiles[expert + 1] = (int32_t)(first_tile + tiles_of(a, expert));
        }
    }
    for (uint64_t from = 0; from < a.rows; from += THREADS) {
        uint64_t i = from + threadIdx.x;
        uint32_t mine = i < a.rows && a.ids[i] == (int32_t)expert, all;
        uint32_t place = first + sum_below(mine, &all);
        if (mine) a.order[place] = (int32_t)i;
        first += all;
    }
}

// Rows of y that no expert is asked for: a CTA to a row.
CBQ_FN void clear_row(const route_args &a) {
    int32_t id = a.ids[blockIdx.x];
    if (id >= 0 && (uint32_t)id < a.experts) return;
    uint8_t *y = a.y + blockIdx.x * a.y_stride * float_size(a.y_dtype);
    for (uint32_t i = threadIdx.x; i < a.n; i += THREADS) store1(y + i * float_size(a.y_dtype), 0.0f, a.y_dtype);
}

extern "C" __global__ void __launch_bounds__(THREADS) cbq_route_count(route_args a) { count_expert(a); }
extern "C" __global__ void __launch_bounds__(THREADS) cbq_route_order(route_args a) { order_expert(a); }
extern "C" __global__ void __launch_bounds__(THREADS) cbq_route_clear(route_args a) { clear_row(a); }

// Starts the three kernels and tells the product where they leave the order.
cudaError_t route(product_args &p, const int32_t *ids, void *workspace, uint32_t tokens, cudaStream_t stream) {
    route_args a = {};
    a.ids = ids;
    a.rows = (uint64_t)p.m * p.picks;
    a.experts = p.experts;
    a.counts = (int32_t *)workspace;
    a.first = a.counts + a.experts;
    a.tiles = a.first + a.experts + 1;
    a.order = a.tiles + a.experts + 1;
    a.y = p.y;
    a.y_stride = p.y_stride;
    a.y_dtype = p.y_dtype;
    a.n = p.n;
    a.tokens = tokens;
    p.order = a.order;
    p.first = a.first;
    p.tiles = a.tiles;
    cudaError_t error = cu_launch(cbq_route_count, dim3(a.experts), THREADS, 0, stream, a);
    if (error == cudaSuccess) error = cu_launch(cbq_route_order, dim3(a.experts), THREADS, 0, stream, a);
    if (error == cudaSuccess) error = cu_launch(cbq_route_clear, dim3((unsigned)a.rows), THREADS, 0, stream, a);
    return error;
}
