// Device memory: pages of its own for each allocation, 0xFF in it, a page without access before and behind, and a pattern in
// what is left of the pages beside it.
#include "memory.h"
#include "control.h"

#include <deque>
#include <mutex>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

namespace shim {

enum { ALIGNMENT = 256, FENCE = 0xA7, FREED_KEPT = 256 };

struct Allocation {
    char *map, *begin; // the first page has no access, and the last
    size_t map_bytes, bytes;
    unsigned number;
    int device;
    bool freed;

    char *pages() const { return map + page(); }
    char *pages_end() const { return map + map_bytes - page(); }
    static size_t page() { return (size_t)sysconf(_SC_PAGESIZE); }
};

static std::mutex mutex;
static std::deque<Allocation> allocations; // live ones, and the last few that were freed
static unsigned count;

static Allocation *find_map(const void *p) {
    for (Allocation &a : allocations)
        if ((const char *)p >= a.map && (const char *)p < a.map + a.map_bytes) return &a;
    return NULL;
}

static Allocation *find_live(const void *p) {
    Allocation *a = find_map(p);
    return a && !a->freed && (const char *)p >= a->begin && (const char *)p < a->begin + a->bytes ? a : NULL;
}

static size_t live_bytes() {
    size_t sum = 0;
    for (const Allocation &a : allocations) sum += a.freed ? 0 : a.bytes;
    return sum;
}

static cudaError_t allocate(void **pointer, size_t bytes) {
    *pointer = NULL;
    if (bytes == 0) return cudaSuccess;
    std::lock_guard<std::mutex> lock(mutex);
    cudaDeviceProp properties;
    cudaGetDeviceProperties(&properties, current_device());
    if (bytes > properties.totalGlobalMem - live_bytes()) return cudaErrorMemoryAllocation;
    size_t page = Allocation::page(), body = (bytes + page - 1) / page * page;
    char *map = (char *)mmap(NULL, body + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED || mprotect(map + page, body, PROT_READ | PROT_WRITE) != 0) return cudaErrorMemoryAllocation;
    char *begin = map + page + body - (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    Allocation a = {map, begin, body + 2 * page, bytes, ++count, current_device(), false};
    memset(a.pages(), FENCE, body);
    memset(begin, 0xFF, bytes);
    allocations.push_back(a);
    *pointer = begin;
    return cudaSuccess;
}

static void mend(char *from, char *to, size_t &damaged, char *&first) {
    for (char *p = from; p < to; p++) {
        if ((unsigned char)*p == FENCE) continue;
        if (damaged++ == 0) first = p;
        *p = (char)FENCE;
    }
}

static std::string name(const Allocation &a) { return "allocation " + std::to_string(a.number) + " of " + std::to_string(a.bytes) + " bytes"; }

static std::string distance(const Allocation &a, const char *p) {
    if (p < a.begin) return std::to_string(a.begin - p) + " bytes before " + name(a);
    if (p >= a.begin + a.bytes) return std::to_string(p - a.begin - a.bytes) + " bytes past the end of " + name(a);
    return std::to_string(p - a.begin) + " bytes into " + name(a);
}

static std::string damage_of(const Allocation &a) {
    size_t damaged = 0;
    char *first = NULL;
    mend(a.pages(), a.begin, damaged, first);
    mend(a.begin + a.bytes, a.pages_end(), damaged, first);
    return damaged ? "wrote " + std::to_string(damaged) + " bytes beside " + name(a) + ", the first " + distance(a, first) : "";
}

std::string damaged_fences() {
    std::lock_guard<std::mutex> lock(mutex);
    std::string all;
    for (const Allocation &a : allocations) {
        std::string one = a.freed ? "" : damage_of(a);
        if (!one.empty()) all += (all.empty() ? "" : "; ") + one;
    }
    return all;
}

static cudaError_t release(void *pointer) {
    if (!pointer) return cudaSuccess;
    std::lock_guard<std::mutex> lock(mutex);
    Allocation *a = find_live(pointer);
    if (!a || a->begin != pointer) return cudaErrorInvalidValue;
    std::string damage = damage_of(*a);
    a->freed = true;
    mprotect(a->map, a->map_bytes, PROT_NONE); // who still uses it is told so
    madvise(a->map, a->map_bytes, MADV_DONTNEED);
    if (allocations.size() > FREED_KEPT && allocations.front().freed) {
        munmap(allocations.front().map, allocations.front().map_bytes);
        allocations.pop_front();
    }
    if (damage.empty()) return cudaSuccess;
    note(("cudaFree: somebody " + damage).c_str());
    return cudaErrorIllegalAddress;
}

// Called where a fault was caught, in the thread that made it; it was not in the middle of the functions above.
std::string describe(const void *address) {
    const Allocation *a = find_map(address);
    if (!a) return "in no device memory";
    return distance(*a, (const char *)address) + (a->freed ? ", which was freed" : "");
}

static bool is_device(const void *p, size_t bytes) {
    std::lock_guard<std::mutex> lock(mutex);
    const Allocation *a = find_live(p);
    return a && (const char *)p + bytes <= a->begin + a->bytes;
}

static bool touches_device(const void *p) {
    std::lock_guard<std::mutex> lock(mutex);
    return find_map(p) != NULL;
}

static cudaError_t check_place(const void *p, size_t bytes, bool device, bool either) {
    if (bytes == 0) return cudaSuccess;
    if (either) device = touches_device(p);
    return (device ? is_device(p, bytes) : !touches_device(p)) ? cudaSuccess : cudaErrorInvalidValue;
}

static cudaError_t copy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
    bool any = kind == cudaMemcpyDefault;
    cudaError_t error = check_place(to, bytes, kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice, any);
    if (error == cudaSuccess) error = check_place(from, bytes, kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice, any);
    if (error == cudaSuccess && bytes) memmove(to, from, bytes);
    return error;
}

} // namespace shim

using namespace shim;

extern "C" {

cudaError_t cudaMalloc(void **pointer, size_t bytes) {
    SHIM_ENTER();
    if (!pointer) return set_last_error(cudaErrorInvalidValue);
    if (forbids_allocation()) return set_last_error(cudaErrorStreamCaptureUnsupported);
    return set_last_error(allocate(pointer, bytes));
}
cudaError_t cudaFree(void *pointer) {
    SHIM_ENTER();
    if (forbids_allocation()) return set_last_error(cudaErrorStreamCaptureUnsupported);
    return set_last_error(release(pointer));
}
cudaError_t cudaMallocAsync(void **pointer, size_t bytes, cudaStream_t stream) {
    SHIM_ENTER();
    if (!pointer) return set_last_error(cudaErrorInvalidValue);
    cudaError_t error = check_stream(stream);
    return set_last_error(error == cudaSuccess ? allocate(pointer, bytes) : error);
}
cudaError_t cudaFreeAsync(void *pointer, cudaStream_t stream) {
    SHIM_ENTER();
    cudaError_t error = check_stream(stream);
    return set_last_error(error == cudaSuccess ? release(pointer) : error);
}
cudaError_t cudaMallocHost(void **pointer, size_t bytes) {
    SHIM_ENTER();
    if (!pointer) return set_last_error(cudaErrorInvalidValue);
    *pointer = bytes ? malloc(bytes) : NULL;
    return set_last_error(bytes && !*pointer ? cudaErrorMemoryAllocation : cudaSuccess);
}
cudaError_t cudaFreeHost(void *pointer) {
    SHIM_ENTER();
    if (pointer && touches_device(pointer)) return set_last_error(cudaErrorInvalidValue);
    free(pointer);
    return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *available, size_t *total) {
    SHIM_ENTER();
    cudaDeviceProp properties;
    cudaError_t error = cudaGetDeviceProperties(&properties, current_device());
    if (error != cudaSuccess) return error;
    std::lock_guard<std::mutex> lock(mutex);
    *total = properties.totalGlobalMem;
    *available = properties.totalGlobalMem - live_bytes();
    return cudaSuccess;
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
    SHIM_ENTER();
    if (anything_captures()) return set_last_error(cudaErrorStreamCaptureImplicit);
    return set_last_error(copy(to, from, bytes, kind));
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    SHIM_ENTER();
    cudaError_t error = check_stream(stream);
    return set_last_error(error == cudaSuccess ? copy(to, from, bytes, kind) : error);
}
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
    SHIM_ENTER();
    cudaError_t error = width > to_pitch || width > from_pitch ? cudaErrorInvalidValue : check_stream(stream);
    for (size_t i = 0; i < height && error == cudaSuccess; i++)
        error = copy((char *)to + i * to_pitch, (const char *)from + i * from_pitch, width, kind);
    return set_last_error(error);
}
cudaError_t cudaMemset(void *pointer, int value, size_t bytes) {
    SHIM_ENTER();
    if (bytes && !is_device(pointer, bytes)) return set_last_error(cudaErrorInvalidValue);
    if (bytes) memset(pointer, value, bytes);
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *pointer, int value, size_t bytes, cudaStream_t stream) {
    SHIM_ENTER();
    cudaError_t error = check_stream(stream);
    if (error == cudaSuccess && bytes && !is_device(pointer, bytes)) error = cudaErrorInvalidValue;
    if (error == cudaSuccess && bytes) memset(pointer, value, bytes);
    return set_last_error(error);
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *pointer) {
    SHIM_ENTER();
    if (!attributes) return set_last_error(cudaErrorInvalidValue);
    std::lock_guard<std::mutex> lock(mutex);
    const Allocation *a = find_live(pointer);
    *attributes = {cudaMemoryTypeUnregistered, -2, NULL, (void *)pointer}; // -2: cudaInvalidDeviceId
    if (a) *attributes = {cudaMemoryTypeDevice, a->device, (void *)pointer, NULL};
    return cudaSuccess;
}

size_t shim_live(size_t *bytes) {
    std::lock_guard<std::mutex> lock(mutex);
    size_t live = 0;
    for (const Allocation &a : allocations) live += !a.freed;
    if (bytes) *bytes = live_bytes();
    return live;
}

} // extern "C"
