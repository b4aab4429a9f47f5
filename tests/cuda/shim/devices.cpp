// The devices that the environment asks for: CBQUANT_SHIM_DEVICES, by default "8.0x3", is a list of compute capabilities with
// numbers of multiprocessors, or "none" (a driver without a device), or "no driver".
#include "control.h"
#include "memory.h"

#include <atomic>
#include <map>
#include <mutex>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace shim {

static const char *environment() {
    const char *asked = getenv("CBQUANT_SHIM_DEVICES");
    return asked ? asked : "8.0x3";
}

// -1 without a driver.
int count_devices() {
    const char *e = environment();
    if (strcmp(e, "no driver") == 0) return -1;
    if (strcmp(e, "none") == 0) return 0;
    int n = 1;
    for (; *e; e++) n += *e == ',';
    return n;
}

Device device_at(int i) {
    const char *e = environment();
    for (; i > 0; i--) e = strchr(e, ',') + 1;
    Device d;
    if (sscanf(e, "%d.%dx%d", &d.major, &d.minor, &d.processors) != 3) {
        fprintf(stderr, "CBQUANT_SHIM_DEVICES=%s: expected \"8.0x3\", \"8.0x3,9.0x4\", \"none\" or \"no driver\"\n", environment());
        abort();
    }
    return d;
}

// Of each thread; no thread_local: that is shared memory here.
static pthread_key_t device_key() {
    static pthread_key_t key = [] {
        pthread_key_t k;
        pthread_key_create(&k, NULL);
        return k;
    }();
    return key;
}
int current_device() { return (int)(intptr_t)pthread_getspecific(device_key()); }

// Most bytes of shared memory of a block, with permission (CUDA C++ Programming Guide, "Compute Capabilities").
static int most_shared(const Device &d) {
    int version = 10 * d.major + d.minor;
    if (version < 80) return 64 << 10;
    if (version == 86 || version == 89 || version >= 120) return 99 << 10;
    return (version >= 90 ? 227 : 163) << 10;
}

static std::mutex mutex;
static int most_threads = 1024;
static std::map<const void *, int> &dynamic_limits() {
    static std::map<const void *, int> all;
    return all;
}

int dynamic_limit(const void *kernel) {
    std::lock_guard<std::mutex> lock(mutex);
    auto found = dynamic_limits().find(kernel);
    return found == dynamic_limits().end() ? 48 << 10 : found->second;
}

static void fill(cudaDeviceProp *p, const Device &d) {
    *p = {};
    snprintf(p->name, sizeof p->name, "Shim %d.%d", d.major, d.minor);
    p->totalGlobalMem = (size_t)1 << 30;
    p->sharedMemPerBlock = 48 << 10;
    p->sharedMemPerBlockOptin = (size_t)most_shared(d);
    p->sharedMemPerMultiprocessor = p->sharedMemPerBlockOptin + 1024;
    p->regsPerBlock = p->regsPerMultiprocessor = 65536;
    p->warpSize = 32;
    p->maxThreadsPerBlock = 1024;
    p->maxThreadsPerMultiProcessor = 2048;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
    p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = 0x7fffffff;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->major = d.major;
    p->minor = d.minor;
    p->multiProcessorCount = d.processors;
    p->l2CacheSize = 4 << 20;
    p->memoryBusWidth = 384;
}

static cudaError_t attribute_of(int *value, cudaDeviceAttr attribute, int device) {
    cudaDeviceProp p;
    fill(&p, device_at(device));
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = p.maxThreadsPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = (int)p.sharedMemPerBlock; break;
    case cudaDevAttrWarpSize: *value = p.warpSize; break;
    case cudaDevAttrClockRate: *value = 1000000; break;
    case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
    case cudaDevAttrMemoryClockRate: *value = 1000000; break;
    case cudaDevAttrGlobalMemoryBusWidth: *value = p.memoryBusWidth; break;
    case cudaDevAttrL2CacheSize: *value = p.l2CacheSize; break;
    case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = p.minor; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = (int)p.sharedMemPerMultiprocessor; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = (int)p.sharedMemPerBlockOptin; break;
    default: return cudaErrorInvalidValue;
    }
    return cudaSuccess;
}

} // namespace shim

using namespace shim;

extern "C" {

void shim_kernel_threads(int most) { most_threads = most; }

cudaError_t cudaDriverGetVersion(int *version) {
    *version = count_devices() < 0 ? 0 : CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int *count) {
    *count = 0;
    SHIM_ENTER();
    *count = count_devices();
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int *device) {
    SHIM_ENTER();
    *device = current_device();
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
    SHIM_ENTER();
    if (device < 0 || device >= count_devices()) return set_last_error(cudaErrorInvalidDevice);
    pthread_setspecific(device_key(), (void *)(intptr_t)device);
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device) {
    SHIM_ENTER();
    if (device < 0 || device >= count_devices()) return set_last_error(cudaErrorInvalidDevice);
    fill(properties, device_at(device));
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device) {
    SHIM_ENTER();
    if (device < 0 || device >= count_devices()) return set_last_error(cudaErrorInvalidDevice);
    return set_last_error(attribute_of(value, attribute, device));
}

cudaError_t cudaFuncSetAttribute(const void *function, cudaFuncAttribute attribute, int value) {
    SHIM_ENTER();
    if (!function) return set_last_error(cudaErrorInvalidDeviceFunction);
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) return cudaSuccess;
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 || value > most_shared(device_at(current_device())))
        return set_last_error(cudaErrorInvalidValue);
    std::lock_guard<std::mutex> lock(mutex);
    dynamic_limits()[function] = value > 48 << 10 ? value : 48 << 10;
    return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *function) {
    SHIM_ENTER();
    if (!function) return set_last_error(cudaErrorInvalidDeviceFunction);
    Device d = device_at(current_device());
    *attributes = {};
    attributes->maxThreadsPerBlock = most_threads;
    attributes->numRegs = 32;
    attributes->ptxVersion = attributes->binaryVersion = 10 * d.major + d.minor;
    attributes->maxDynamicSharedSizeBytes = dynamic_limit(function);
    return cudaSuccess;
}

} // extern "C"
