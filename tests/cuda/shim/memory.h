// What the files of the runtime API know of each other.
#pragma once
#include "cuda_runtime_api.h"

#include <string>

namespace shim {

// Every function of the API begins with it: an injected error, or that there is no device.
cudaError_t enter(const char *function);
cudaError_t set_last_error(cudaError_t error); // and returns it
#define SHIM_ENTER() \
    if (cudaError_t injected = shim::enter(__func__); injected != cudaSuccess) return shim::set_last_error(injected)

struct Device {
    int major, minor, processors;
};
int count_devices();
Device device_at(int i);
int current_device();

cudaError_t check_stream(cudaStream_t stream);
bool anything_captures();
bool forbids_allocation(); // a stream captures, and this thread has not said that it knows (relaxed mode)
int dynamic_limit(const void *kernel); // bytes of dynamic shared memory that it may have

std::string damaged_fences(); // which allocations were written past; "" if none. Mends them
std::string describe(const void *address);
void note(const char *message); // for shim_error

} // namespace shim
