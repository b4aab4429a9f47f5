// The file of the same name in cuda/device, for kernels that run on the CPU: all their threads, before it returns.
#pragma once
#include <cuda_runtime.h>

namespace shim {
struct Launch {
    const void *kernel;
    dim3 grid, block;
    size_t shared_bytes;
    void (*call)(const void *pair); // the kernel, as one thread calls it
    const void *pair, *args;
    size_t args_bytes;
};
cudaError_t launch(const Launch &what, cudaStream_t stream);
} // namespace shim

template <class Args>
static cudaError_t cu_launch(void (*kernel)(Args), dim3 grid, unsigned block, size_t shared_bytes, cudaStream_t stream, Args args) {
    if (shared_bytes > 48 * 1024) {
        cudaError_t error = cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_bytes);
        if (error != cudaSuccess) return error;
    }
    struct Pair {
        void (*kernel)(Args);
        Args args;
    } pair = {kernel, args};
    auto call = [](const void *p) { ((const Pair *)p)->kernel(((const Pair *)p)->args); };
    return shim::launch({(const void *)kernel, grid, dim3(block), shared_bytes, call, &pair, &pair.args, sizeof(Args)}, stream);
}
