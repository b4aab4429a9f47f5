// Streams and events. Everything is done when its call returns, so what is left of them is who exists and who captures.
#include "control.h"
#include "memory.h"

#include <map>
#include <mutex>
#include <pthread.h>
#include <set>
#include <time.h>

struct CUstream_st {
    int device;
};
struct CUevent_st {
    bool recorded, timed;
    double seconds;
};

namespace shim {

static std::mutex mutex;
static std::set<cudaStream_t> streams, capturing;
static std::set<cudaEvent_t> events;

static bool is_builtin(cudaStream_t s) { return !s || s == cudaStreamLegacy || s == cudaStreamPerThread; }

cudaError_t check_stream(cudaStream_t stream) {
    std::lock_guard<std::mutex> lock(mutex);
    return is_builtin(stream) || streams.count(stream) ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

bool anything_captures() {
    std::lock_guard<std::mutex> lock(mutex);
    return !capturing.empty();
}

// The capture mode of each thread; no thread_local: that is shared memory here.
static pthread_key_t mode_key() {
    static pthread_key_t key = [] {
        pthread_key_t k;
        pthread_key_create(&k, NULL);
        return k;
    }();
    return key;
}
static cudaStreamCaptureMode current_mode() { return (cudaStreamCaptureMode)(intptr_t)pthread_getspecific(mode_key()); }

bool forbids_allocation() { return current_mode() != cudaStreamCaptureModeRelaxed && anything_captures(); }

static cudaError_t wait_for(cudaStream_t stream) {
    cudaError_t error = check_stream(stream);
    std::lock_guard<std::mutex> lock(mutex);
    return error == cudaSuccess && capturing.count(stream) ? cudaErrorStreamCaptureUnsupported : error;
}

static cudaError_t check_event(cudaEvent_t event) {
    std::lock_guard<std::mutex> lock(mutex);
    return events.count(event) ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

} // namespace shim

using namespace shim;

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    SHIM_ENTER();
    if (!stream || flags > cudaStreamNonBlocking) return set_last_error(cudaErrorInvalidValue);
    std::lock_guard<std::mutex> lock(mutex);
    *stream = *streams.insert(new CUstream_st{current_device()}).first;
    return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t *stream) {
    SHIM_ENTER();
    return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    SHIM_ENTER();
    std::lock_guard<std::mutex> lock(mutex);
    if (!streams.erase(stream)) return set_last_error(cudaErrorInvalidResourceHandle);
    capturing.erase(stream);
    delete stream;
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    SHIM_ENTER();
    return set_last_error(wait_for(stream));
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
    SHIM_ENTER();
    return set_last_error(wait_for(stream));
}
cudaError_t cudaDeviceSynchronize(void) {
    SHIM_ENTER();
    return anything_captures() ? set_last_error(cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status) {
    SHIM_ENTER();
    cudaError_t error = check_stream(stream);
    if (error != cudaSuccess) return set_last_error(error);
    if ((!stream || stream == cudaStreamLegacy) && anything_captures()) return set_last_error(cudaErrorStreamCaptureImplicit);
    std::lock_guard<std::mutex> lock(mutex);
    *status = capturing.count(stream) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode) {
    SHIM_ENTER();
    cudaStreamCaptureMode before = current_mode();
    pthread_setspecific(mode_key(), (void *)(intptr_t)*mode);
    *mode = before;
    return cudaSuccess;
}
cudaError_t cudaStreamGetDevice(cudaStream_t stream, int *device) {
    SHIM_ENTER();
    cudaError_t error = check_stream(stream);
    if (error == cudaSuccess) *device = is_builtin(stream) ? current_device() : stream->device;
    return set_last_error(error);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    SHIM_ENTER();
    cudaError_t error = check_stream(stream);
    return set_last_error(error == cudaSuccess ? check_event(event) : error);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    SHIM_ENTER();
    if (!event) return set_last_error(cudaErrorInvalidValue);
    std::lock_guard<std::mutex> lock(mutex);
    *event = *events.insert(new CUevent_st{false, !(flags & cudaEventDisableTiming), 0}).first;
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *event) {
    SHIM_ENTER();
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    SHIM_ENTER();
    std::lock_guard<std::mutex> lock(mutex);
    if (!events.erase(event)) return set_last_error(cudaErrorInvalidResourceHandle);
    delete event;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    SHIM_ENTER();
    cudaError_t error = check_stream(stream);
    if (error == cudaSuccess) error = check_event(event);
    if (error != cudaSuccess) return set_last_error(error);
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    event->recorded = true;
    event->seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    SHIM_ENTER();
    return set_last_error(check_event(event));
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    SHIM_ENTER();
    return set_last_error(check_event(event));
}
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t begin, cudaEvent_t end) {
    SHIM_ENTER();
    cudaError_t error = check_event(begin);
    if (error == cudaSuccess) error = check_event(end);
    if (error == cudaSuccess && !(begin->recorded && end->recorded && begin->timed && end->timed)) error = cudaErrorInvalidResourceHandle;
    if (error == cudaSuccess) *milliseconds = (float)(1e3 * (end->seconds - begin->seconds));
    return set_last_error(error);
}

void shim_capture(cudaStream_t stream, int on) {
    std::lock_guard<std::mutex> lock(mutex);
    if (on) capturing.insert(stream);
    else capturing.erase(stream);
}

} // extern "C"
