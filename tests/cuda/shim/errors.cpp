// Errors: their names, the last one of each thread, and those that a test asks for.
#include "control.h"
#include "memory.h"

#include <map>
#include <mutex>
#include <pthread.h>
#include <string>

namespace shim {

// No thread_local: that is shared memory here.
static pthread_key_t last_key() {
    static pthread_key_t key = [] {
        pthread_key_t k;
        pthread_key_create(&k, NULL);
        return k;
    }();
    return key;
}

cudaError_t set_last_error(cudaError_t error) {
    if (error != cudaSuccess) pthread_setspecific(last_key(), (void *)(uintptr_t)error);
    return error;
}

struct Injected {
    int calls_before, error;
};
static std::mutex mutex;
static std::map<std::string, Injected> &injected() {
    static std::map<std::string, Injected> all;
    return all;
}

static cudaError_t injected_error(const char *function) {
    std::lock_guard<std::mutex> lock(mutex);
    auto found = injected().find(function);
    if (found == injected().end() || found->second.calls_before-- > 0) return cudaSuccess;
    cudaError_t error = (cudaError_t)found->second.error;
    injected().erase(found);
    return error;
}

cudaError_t enter(const char *function) {
    cudaError_t error = injected_error(function);
    if (error == cudaSuccess && count_devices() < 0) error = cudaErrorInsufficientDriver;
    if (error == cudaSuccess && count_devices() == 0) error = cudaErrorNoDevice;
    return error;
}

} // namespace shim

extern "C" {

void shim_inject(const char *function, int calls_before, int error) {
    std::lock_guard<std::mutex> lock(shim::mutex);
    shim::injected()[function] = {calls_before, error};
}

const char *cudaGetErrorName(cudaError_t error) {
#define NAME(name, code, text) case code: return #name;
    switch ((int)error) { SHIM_ERRORS(NAME) }
    return "unrecognized error code";
}
const char *cudaGetErrorString(cudaError_t error) {
#define TEXT(name, code, text) case code: return text;
    switch ((int)error) { SHIM_ERRORS(TEXT) }
    return "unrecognized error code";
}
cudaError_t cudaPeekAtLastError(void) { return (cudaError_t)(uintptr_t)pthread_getspecific(shim::last_key()); }
cudaError_t cudaGetLastError(void) {
    cudaError_t error = cudaPeekAtLastError();
    pthread_setspecific(shim::last_key(), NULL);
    return error;
}

} // extern "C"
