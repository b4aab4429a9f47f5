// partial_rope: the sines and cosines of all positions first, in double precision, then the rotation of all heads by them.
//
// Not yet run on a GPU: tests run them with threads on the CPU, and the PTX that nvcc makes of them in an interpreter.
#include "array.cuh"

#include <math.h>

struct rope_args {
    cbq_cuda_array x, positions, frequencies, y; // no frequencies: the powers of theta
    float2 *table; // [T, n_rot / 2]: cosine, sine
    double log2_theta;
    int64_t elements;
    int n_rot, inverse, interleaved;
};

CBQ_FN double real(const cbq_cuda_array &a, int64_t i) {
    int64_t at = i * a.strides[0];
    if (a.type == CBQ_CUDA_I32) return ((const int32_t *)a.data)[at];
    if (a.type == CBQ_CUDA_I64) return (double)((const int64_t *)a.data)[at];
    if (a.type == CBQ_CUDA_F64) return ((const double *)a.data)[at];
    return get(a, at);
}

// 2^x for x <= 0: 2^n times the series of e^r to r^13, |r| <= ln 2 / 2, which leaves 1e-17 of it.
CBQ_FN double power_of_two(double x) {
    double n = rint(x), r = (x - n) * 0.693147180559945309417, sum = 1;
#pragma unroll
    for (int i = 13; i > 0; i--) sum = fma(sum, r / i, 1.0);
    return ldexp(sum, (int)n);
}

// cos and sin of an angle, in turns. The nearest quarter goes first; what is left, at most an eighth (pi / 4), takes the two
// series to x^16 and x^17, whose next terms are below 1e-17.
CBQ_FN void turn(double turns, double &cosine, double &sine) {
    double quarters = rint(4 * turns), x = (turns - 0.25 * quarters) * 6.283185307179586476925, z = -x * x, c = 1, s = 1;
#pragma unroll
    for (int i = 8; i > 0; i--) {
        c = fma(c, z / (2 * i * (2 * i - 1)), 1.0);
        s = fma(s, z / (2 * i * (2 * i + 1)), 1.0);
    }
    s *= x;
    int quarter = (int)(quarters - 4 * floor(quarters * 0.25));
    cosine = quarter == 0 ? c : quarter == 1 ? -s : quarter == 2 ? -c : s;
    sine = quarter == 0 ? s : quarter == 1 ? c : quarter == 2 ? -s : -c;
}

// The angle of pair i is position theta^(-2i / n_rot), or position frequencies[i]. Turns are counted modulo 1 before they are
// multiplied with 2 pi, so that the error is that of position times rate: 2^-53 of the number of turns.
extern "C" __global__ void __launch_bounds__(OPERATOR_THREADS) cbq_rope_table(rope_args s) {
    int64_t i = thread_of_grid(), half = s.n_rot / 2, t = i / half, pair = i - t * half;
    if (t >= s.positions.shape[0]) return;
    double rate = s.frequencies.data ? real(s.frequencies, pair) : power_of_two(-2.0 * (double)pair / s.n_rot * s.log2_theta);
    double turns = real(s.positions, t) * rate * 0.159154943091895335769, cosine, sine;
    turn(turns - rint(turns), cosine, sine);
    s.table[i] = make_float2((float)cosine, (float)(s.inverse ? -sine : sine));
}

// Elements of [N, T, heads, head_dim] that are copied, and, a pair to a thread, those that are turned: a thread reads what it writes
// before it writes, and nobody else does, so y may be x.
extern "C" __global__ void __launch_bounds__(OPERATOR_THREADS) cbq_partial_rope(rope_args s) {
    int64_t width = s.x.shape[3], plain = width - s.n_rot, half = s.n_rot / 2, each = plain + half;
    int64_t i = thread_of_grid(), row = i / each, e = i - row * each;
    if (i >= s.elements) return;
    int64_t head = row % s.x.shape[2], t = row / s.x.shape[2] % s.x.shape[1], n = row / s.x.shape[2] / s.x.shape[1];
    int64_t x = place(s.x, n, t, head), y = place(s.y, n, t, head);
    if (e < plain) {
        put(s.y, y + e * s.y.strides[3], get(s.x, x + e * s.x.strides[3]));
        return;
    }
    int64_t pair = e - plain, first = plain + (s.interleaved ? 2 * pair : pair), second = first + (s.interleaved ? 1 : half);
    float2 angle = s.table[t * half + pair];
    float a = get(s.x, x + first * s.x.strides[3]), b = get(s.x, x + second * s.x.strides[3]);
    put(s.y, y + first * s.y.strides[3], fmaf(-b, angle.y, a * angle.x));
    put(s.y, y + second * s.y.strides[3], fmaf(a, angle.y, b * angle.x));
}

static uint64_t rope_workspace(const cbq_cuda_operands *o) {
    return (uint64_t)o->arrays[1].shape[0] * (uint64_t)(o->numbers[0] / 2) * sizeof(float2);
}
// x [N, T, heads, head_dim], positions [T], frequencies [n_rot / 2] or nothing, y as x; numbers: n_rot, theta, inverse, interleaved.
static cudaError_t partial_rope(const cbq_cuda_operands *o, cudaStream_t stream) {
    rope_args s = {o->arrays[0], o->arrays[1], o->arrays[2], o->arrays[3], (float2 *)o->workspace, log2(o->numbers[1])};
    s.n_rot = (int)o->numbers[0];
    s.inverse = o->numbers[2] != 0;
    s.interleaved = o->numbers[3] != 0;
    s.elements = s.x.shape[0] * s.x.shape[1] * s.x.shape[2] * (s.x.shape[3] - s.n_rot / 2);
    if (s.elements == 0) return cudaSuccess;
    cudaError_t error = cu_launch(cbq_rope_table, ctas_for(s.positions.shape[0] * (s.n_rot / 2)), OPERATOR_THREADS, 0, stream, s);
    return error != cudaSuccess ? error : cu_launch(cbq_partial_rope, ctas_for(s.elements), OPERATOR_THREADS, 0, stream, s);
}

extern "C" const cbq_cuda_operator cbq_cuda_rope[] = {{"partial_rope", 4, 4, rope_workspace, partial_rope}, {NULL, 0, 0, NULL, NULL}};
