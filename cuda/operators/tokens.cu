// Operators whose thread goes through a few numbers of one token or one column: Sinkhorn's algorithm, pooling.
//
// Not yet run on a GPU: tests run them with threads on the CPU, and the PTX that nvcc makes of them in an interpreter.
#include "array.cuh"
#include "lanes.cuh"

enum { SIDE = 4 };

struct sinkhorn_args {
    cbq_cuda_array mix, scale, base, pre, post, comb;
    float eps;
    int iters, ends_with_columns, src_first;
};

CBQ_FN void divide_by_sum(float &a, float &b, float &c, float &d, float eps) {
    float inverse = 1.0f / ((a + b) + (c + d) + eps);
    a *= inverse;
    b *= inverse;
    c *= inverse;
    d *= inverse;
}
CBQ_FN void columns(float m[SIDE][SIDE], float eps) {
#pragma unroll
    for (int src = 0; src < SIDE; src++) divide_by_sum(m[0][src], m[1][src], m[2][src], m[3][src], eps);
}
CBQ_FN void rows(float m[SIDE][SIDE], float eps) {
#pragma unroll
    for (int dst = 0; dst < SIDE; dst++) divide_by_sum(m[dst][0], m[dst][1], m[dst][2], m[dst][3], eps);
}

CBQ_FN float logit(const sinkhorn_args &s, int64_t t, int i) {
    int which = i < SIDE ? 0 : i < 2 * SIDE ? 1 : 2;
    return fmaf(get(s.mix, place(s.mix, t, i)), get(s.scale, place(s.scale, which)), get(s.base, place(s.base, i)));
}

// A token's matrix stays in registers: with four CTAs said to it, the compiler has room for it.
extern "C" __global__ void __launch_bounds__(OPERATOR_THREADS, 4) cbq_mhc_sinkhorn_split(sinkhorn_args s) {
    int64_t t = thread_of_grid();
    if (t >= s.mix.shape[0]) return;
    float m[SIDE][SIDE];
#pragma unroll
    for (int c = 0; c < SIDE; c++) {
        put(s.pre, place(s.pre, t, c), f_sigmoid(logit(s, t, c)) + s.eps);
        put(s.post, place(s.post, t, c), 2 * f_sigmoid(logit(s, t, SIDE + c)));
    }
#pragma unroll
    for (int dst = 0; dst < SIDE; dst++) {
#pragma unroll
        for (int src = 0; src < SIDE; src++) m[dst][src] = logit(s, t, 2 * SIDE + (s.src_first ? src * SIDE + dst : dst * SIDE + src));
        float largest = f_max(f_max(m[dst][0], m[dst][1]), f_max(m[dst][2], m[dst][3]));
#pragma unroll
        for (int src = 0; src < SIDE; src++) m[dst][src] = f_exp(m[dst][src] - largest);
        divide_by_sum(m[dst][0], m[dst][1], m[dst][2], m[dst][3], 0);
#pragma unroll
        for (int src = 0; src < SIDE; src++) m[dst][src] += s.eps;
    }
    columns(m, s.eps);
    for (int i = 1; i < s.iters; i++) {
        rows(m, s.eps);
        columns(m, s.eps);
    }
    if (!s.ends_with_columns) rows(m, s.eps);
#pragma unroll
    for (int i = 0; i < SIDE * SIDE; i++) put(s.comb, place(s.comb, t, i / SIDE, i % SIDE), m[i / SIDE][i % SIDE]);
}
// mix [T, 24], scale [3], base [24], pre [T, 4], post [T, 4], comb [T, 4, 4] (dst, src); numbers: iters, eps, whether it ends with
// columns, whether mix has src first.
static cudaError_t mhc_sinkhorn_split(const cbq_cuda_operands *o, cudaStream_t stream) {
    const cbq_cuda_array *a = o->arrays;
    sinkhorn_args s = {a[0], a[1], a[2], a[3], a[4], a[5], (float)o->numbers[1]};
    s.iters = (int)o->numbers[0];
    s.ends_with_columns = o->numbers[2] != 0;
    s.src_first = o->numbers[3] != 0;
    if (s.mix.shape[0] == 0) return cudaSuccess;
    return cu_launch(cbq_mhc_sinkhorn_split, ctas_for(s.mix.shape[0]), OPERATOR_THREADS, 0, stream, s);
}

struct pool_args {
    cbq_cuda_array gate, kv, ape, y;
    int on_gate;
};

// One pass over the window, the weights so far always relative to the largest gate so far.
extern "C" __global__ void __launch_bounds__(OPERATOR_THREADS) cbq_compressor_pool(pool_args s) {
    int64_t i = thread_of_grid(), w = i / s.y.shape[1], d = i - w * s.y.shape[1];
    if (w >= s.y.shape[0]) return;
    float largest = -INFINITY, total = 0, sum = 0;
    for (int64_t p = 0; p < s.kv.shape[1]; p++) {
        float extra = get(s.ape, place(s.ape, p, d)), gate = get(s.gate, place(s.gate, w, p, d)) + (s.on_gate ? extra : 0);
        if (gate == -INFINITY) continue; // whatever its value is
        float value = get(s.kv, place(s.kv, w, p, d)) + (s.on_gate ? 0 : extra);
        float next = gate > largest || gate != gate ? gate : largest, kept = f_exp(largest - next), weight = f_exp(gate - next);
        sum = fmaf(sum, kept, weight * value);
        total = fmaf(total, kept, weight);
        largest = next;
    }
    put(s.y, place(s.y, w, d), total == 0 ? 0 : sum / total);
}
// gate [W, P, D] (its last stride 0 where it has one number), kv [W, P, D], ape [P, D], y [W, D]; numbers: whether ape is of the gate.
static cudaError_t compressor_pool(const cbq_cuda_operands *o, cudaStream_t stream) {
    pool_args s = {o->arrays[0], o->arrays[1], o->arrays[2], o->arrays[3], o->numbers[0] != 0};
    int64_t elements = s.y.shape[0] * s.y.shape[1];
    return elements == 0 ? cudaSuccess : cu_launch(cbq_compressor_pool, ctas_for(elements), OPERATOR_THREADS, 0, stream, s);
}

extern "C" const cbq_cuda_operator cbq_cuda_tokens[] = {
    {"mhc_sinkhorn_split", 6, 4, NULL, mhc_sinkhorn_split},
    {"compressor_pool", 4, 1, NULL, compressor_pool},
    {NULL, 0, 0, NULL, NULL},
};
