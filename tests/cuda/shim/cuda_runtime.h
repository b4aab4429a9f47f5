// CUDA's C++ for g++: qualifiers, built-in variables and vectors. A kernel is a function that every thread of a block calls
// on a stack of its own.
#pragma once
#include "cuda_runtime_api.h"

#include <math.h>
#include <string.h>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
// One thread of the operating system runs one block at a time, so thread-local storage is the block's; what is nowhere
// else thread-local, in this library, is filled, saved and restored as a whole (blocks.cpp).
#define __shared__ static __thread

struct __align__(8) uint2 { unsigned x, y; };
struct __align__(16) uint4 { unsigned x, y, z, w; };
struct __align__(8) int2 { int x, y; };
struct __align__(16) int4 { int x, y, z, w; };
struct __align__(8) float2 { float x, y; };
struct __align__(16) float4 { float x, y, z, w; };
static inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
static inline int2 make_int2(int x, int y) { return {x, y}; }
static inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

namespace shim {

// What a thread can ask about itself.
struct Indices {
    uint3 thread, block;
    dim3 block_size, grid_size;
};
extern Indices *indices; // of the thread that runs

// Where in the source a thread waits: default arguments, which g++ fills in at the place of the call.
#define SHIM_WHERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

void barrier(const char *name, const char *file, int line);
void meet_warp(const char *name, const char *file, int line);

} // namespace shim

#define threadIdx (shim::indices->thread)
#define blockIdx (shim::indices->block)
#define blockDim (shim::indices->block_size)
#define gridDim (shim::indices->grid_size)
#define warpSize 32

template <class T> static inline T __ldg(const T *p) { return *p; }
static __forceinline__ void __syncthreads(SHIM_WHERE) { shim::barrier("__syncthreads", file, line); }
static __forceinline__ void __syncwarp(SHIM_WHERE) { shim::meet_warp("__syncwarp", file, line); }
