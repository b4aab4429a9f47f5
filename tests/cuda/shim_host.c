/* The runtime API as C sees it: what cuda/host stands on. */
#include <control.h>
#include <cuda_runtime_api.h>

cudaError_t host_round_trip(const void *from, void *to, size_t bytes, float *milliseconds);

/* To the device, on the device, and back, on a stream of its own. The first error; nothing is left behind. */
cudaError_t host_round_trip(const void *from, void *to, size_t bytes, float *milliseconds) {
    void *first = NULL, *second = NULL;
    cudaStream_t stream = NULL;
    cudaEvent_t begin = NULL, end = NULL;
    cudaError_t error = cudaMalloc(&first, bytes);
    if (!error) error = cudaMalloc(&second, bytes);
    if (!error) error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (!error) error = cudaEventCreate(&begin);
    if (!error) error = cudaEventCreateWithFlags(&end, cudaEventDefault);
    if (!error) error = cudaEventRecord(begin, stream);
    if (!error) error = cudaMemcpyAsync(first, from, bytes, cudaMemcpyHostToDevice, stream);
    if (!error) error = cudaMemsetAsync(second, 0, bytes, stream);
    if (!error) error = cudaMemcpyAsync(second, first, bytes, cudaMemcpyDeviceToDevice, stream);
    if (!error) error = cudaMemcpyAsync(to, second, bytes, cudaMemcpyDeviceToHost, stream);
    if (!error) error = cudaEventRecord(end, stream);
    if (!error) error = cudaEventSynchronize(end);
    if (!error) error = cudaStreamSynchronize(stream);
    if (!error) error = cudaEventElapsedTime(milliseconds, begin, end);
    if (end) cudaEventDestroy(end);
    if (begin) cudaEventDestroy(begin);
    if (stream) cudaStreamDestroy(stream);
    cudaFree(second);
    cudaFree(first);
    return error;
}
