// Operators that make each element of a few others: a thread has one element, or those of one column.
//
// Not yet run on a GPU: tests run them with threads on the CPU, and the PTX that nvcc makes of them in an interpreter.
#include "array.cuh"
#include "lanes.cuh"

enum { STREAMS = 4 };

struct arrays3 {
    cbq_cuda_array a, b, y;
    int64_t elements;
    float limit; // of swiglu
};

// The i-th element in the order of y's shape, of four axes.
CBQ_FN void places_of(const arrays3 &s, int64_t i, int64_t at[3]) {
    at[0] = at[1] = at[2] = 0;
#pragma unroll
    for (int axis = CBQ_CUDA_DIMS - 1; axis >= 0; axis--) {
        int64_t rest = i / s.y.shape[axis], index = i - rest * s.y.shape[axis];
        at[0] += index * s.a.strides[axis];
        at[1] += index * s.b.strides[axis];
        at[2] += index * s.y.strides[axis];
        i = rest;
    }
}

extern "C" __global__ void __launch_bounds__(OPERATOR_THREADS) cbq_vector_add(arrays3 s) {
    int64_t i = thread_of_grid(), at[3];
    if (i >= s.elements) return;
    places_of(s, i, at);
    put(s.y, at[2], get(s.a, at[0]) + get(s.b, at[1]));
}
// silu(a) * b, with a at most the limit, and b clipped to both sides of 0; NaN stays.
extern "C" __global__ void __launch_bounds__(OPERATOR_THREADS) cbq_swiglu(arrays3 s) {
    int64_t i = thread_of_grid(), at[3];
    if (i >= s.elements) return;
    places_of(s, i, at);
    float gate = get(s.a, at[0]), up = get(s.b, at[1]);
    gate = gate > s.limit ? s.limit : gate;
    up = up > s.limit ? s.limit : up < -s.limit ? -s.limit : up;
    put(s.y, at[2], gate * f_sigmoid(gate) * up);
}

static cudaError_t run3(void (*kernel)(arrays3), const cbq_cuda_operands *o, cudaStream_t stream, float limit = 0) {
    arrays3 s = {o->arrays[0], o->arrays[1], o->arrays[2], 1, limit};
    for (int axis = 0; axis < CBQ_CUDA_DIMS; axis++) s.elements *= s.y.shape[axis];
    return s.elements == 0 ? cudaSuccess : cu_launch(kernel, ctas_for(s.elements), OPERATOR_THREADS, 0, stream, s);
}
// a, b, y: four axes each.
static cudaError_t vector_add(const cbq_cuda_operands *o, cudaStream_t stream) { return run3(cbq_vector_add, o, stream); }
// gate, up, y: four axes each; the number: limit, infinity for none.
static cudaError_t swiglu(const cbq_cuda_operands *o, cudaStream_t stream) { return run3(cbq_swiglu, o, stream, (float)o->numbers[0]); }

struct collapse_args {
    cbq_cuda_array pre, h, y;
};
extern "C" __global__ void __launch_bounds__(OPERATOR_THREADS) cbq_mhc_collapse(collapse_args s) {
    int64_t i = thread_of_grid(), t = i / s.y.shape[1], d = i - t * s.y.shape[1];
    if (t >= s.y.shape[0]) return;
    float sum = 0;
#pragma unroll
    for (int c = 0; c < STREAMS; c++) sum = fmaf(get(s.pre, place(s.pre, t, c)), get(s.h, place(s.h, t, c, d)), sum);
    put(s.y, place(s.y, t, d), sum);
}
// pre [T, 4], h [T, 4, D], y [T, D].
static cudaError_t mhc_collapse(const cbq_cuda_operands *o, cudaStream_t stream) {
    collapse_args s = {o->arrays[0], o->arrays[1], o->arrays[2]};
    int64_t elements = s.y.shape[0] * s.y.shape[1];
    return elements == 0 ? cudaSuccess : cu_launch(cbq_mhc_collapse, ctas_for(elements), OPERATOR_THREADS, 0, stream, s);
}

struct expand_args {
    cbq_cuda_array block_out, post, comb, residual, y;
};
extern "C" __global__ void __launch_bounds__(OPERATOR_THREADS) cbq_mhc_expand(expand_args s) {
    int64_t i = thread_of_grid(), t = i / s.y.shape[2], d = i - t * s.y.shape[2];
    if (t >= s.y.shape[0]) return;
    float out = get(s.block_out, place(s.block_out, t, d)), in[STREAMS];
#pragma unroll
    for (int src = 0; src < STREAMS; src++) in[src] = get(s.residual, place(s.residual, t, src, d));
#pragma unroll
    for (int dst = 0; dst < STREAMS; dst++) {
        float sum = get(s.post, place(s.post, t, dst)) * out;
#pragma unroll
        for (int src = 0; src < STREAMS; src++) sum = fmaf(get(s.comb, place(s.comb, t, dst, src)), in[src], sum);
        put(s.y, place(s.y, t, dst, d), sum);
    }
}
// block_out [T, D], post [T, 4], comb [T, 4, 4] (dst, src), residual [T, 4, D], y [T, 4, D].
static cudaError_t mhc_expand(const cbq_cuda_operands *o, cudaStream_t stream) {
    expand_args s = {o->arrays[0], o->arrays[1], o->arrays[2], o->arrays[3], o->arrays[4]};
    int64_t elements = s.y.shape[0] * s.y.shape[2];
    return elements == 0 ? cudaSuccess : cu_launch(cbq_mhc_expand, ctas_for(elements), OPERATOR_THREADS, 0, stream, s);
}

struct router_args {
    cbq_cuda_array logits, bias, unbiased, biased;
};
extern "C" __global__ void __launch_bounds__(OPERATOR_THREADS) cbq_router_sqrtsoftplus(router_args s) {
    int64_t i = thread_of_grid(), t = i / s.logits.shape[1], e = i - t * s.logits.shape[1];
    if (t >= s.logits.shape[0]) return;
    float score = f_sqrt_softplus(get(s.logits, place(s.logits, t, e)));
    put(s.unbiased, place(s.unbiased, t, e), score);
    put(s.biased, place(s.biased, t, e), score + get(s.bias, place(s.bias, e)));
}
// logits [T, E], bias [E], unbiased [T, E], biased [T, E].
static cudaError_t router_sqrtsoftplus(const cbq_cuda_operands *o, cudaStream_t stream) {
    router_args s = {o->arrays[0], o->arrays[1], o->arrays[2], o->arrays[3]};
    int64_t elements = s.logits.shape[0] * s.logits.shape[1];
    return elements == 0 ? cudaSuccess : cu_launch(cbq_router_sqrtsoftplus, ctas_for(elements), OPERATOR_THREADS, 0, stream, s);
}

extern "C" const cbq_cuda_operator cbq_cuda_elementwise[] = {
    {"vector_add", 3, 0, NULL, vector_add},
    {"swiglu", 3, 1, NULL, swiglu},
    {"mhc_collapse", 3, 0, NULL, mhc_collapse},
    {"mhc_expand", 5, 0, NULL, mhc_expand},
    {"router_sqrtsoftplus", 4, 0, NULL, router_sqrtsoftplus},
    {NULL, 0, 0, NULL, NULL},
};
