// Starting a kernel. Every kernel takes one struct. (Tests build with a file of the same name that runs it on the CPU.)
#pragma once
#include <cuda_runtime.h>

template <class Args>
static cudaError_t cu_launch(void (*kernel)(Args), dim3 grid, unsigned block, size_t shared_bytes, cudaStream_t stream, Args args) {
    if (shared_bytes > 48 * 1024) {
        cudaError_t error = cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_bytes);
        if (error != cudaSuccess) return error;
    }
    void *pointers[] = {&args};
    return cudaLaunchKernel((const void *)kernel, grid, dim3(block), pointers, shared_bytes, stream);
}
