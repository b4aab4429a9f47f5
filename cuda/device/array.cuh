// Elements of arrays at their own strides, of any of the three float types, as floats.
#pragma once
#include "store.cuh"

#include "../host/operators.h"
#include <launch.cuh>

enum { OPERATOR_THREADS = 128 };

CBQ_FN float get(const cbq_cuda_array &a, int64_t at) { return load1((const uint8_t *)a.data + at * float_size(a.type), a.type); }
CBQ_FN void put(const cbq_cuda_array &a, int64_t at, float x) { store1((uint8_t *)a.data + at * float_size(a.type), x, a.type); }

CBQ_FN int64_t place(const cbq_cuda_array &a, int64_t i) { return i * a.strides[0]; }
CBQ_FN int64_t place(const cbq_cuda_array &a, int64_t i, int64_t j) { return i * a.strides[0] + j * a.strides[1]; }
CBQ_FN int64_t place(const cbq_cuda_array &a, int64_t i, int64_t j, int64_t k) { return place(a, i, j) + k * a.strides[2]; }

// int32 or int64
CBQ_FN int64_t integer(const cbq_cuda_array &a, int64_t at) {
    return a.type == CBQ_CUDA_I64 ? ((const int64_t *)a.data)[at] : ((const int32_t *)a.data)[at];
}
// How many of n positions count for row b: all of them where there are no lengths. Nobody has checked those of the device.
CBQ_FN int64_t length_of(const cbq_cuda_array &lengths, int64_t b, int64_t n) {
    int64_t length = lengths.data ? integer(lengths, place(lengths, b)) : n;
    return length < 0 ? 0 : length < n ? length : n;
}

// The sum of a number over so many neighbouring lanes, a power of two.
CBQ_FN float sum_of_lanes(float v, int count) {
    for (int lanes = count / 2; lanes > 0; lanes /= 2) v += cu_shuffle_xor(v, lanes);
    return v;
}

// Threads for a number of elements, as CTAs; more than there can be is an error of the launch.
static inline dim3 ctas_for(int64_t elements, int64_t each = OPERATOR_THREADS) {
    int64_t ctas = (elements + each - 1) / each;
    return dim3(ctas > 0x7fffffff ? 0u : (unsigned)ctas);
}
CBQ_FN int64_t thread_of_grid() { return (int64_t)blockIdx.x * blockDim.x + threadIdx.x; }
