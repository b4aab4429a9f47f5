/* What tests ask of the shim, besides CUDA's own functions. */
#pragma once
#include "cuda_runtime_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The schedules of the launches from here on. */
void shim_seed(unsigned seed);
/* What went wrong in the last launch (or call that found a damaged fence) that failed; "" where none did since shim_clear_error. */
const char *shim_error(void);
void shim_clear_error(void);
/* The call of `function` after next `calls_before` fails with `error`. Kernels: "cu_launch". */
void shim_inject(const char *function, int calls_before, int error);
/* At most so many turns of a warp in a launch; 0: no limit. */
void shim_limit(uint64_t turns);
/* What cudaFuncGetAttributes says of the threads that kernels allow: 1024 until then. */
void shim_kernel_threads(int most);
/* Launches are handed to this function, and nothing runs here; NULL: they run again. What it returns is 0 where all went well. */
typedef int (*shim_launcher)(const char *kernel, const unsigned grid[3], unsigned threads, size_t shared_bytes, const void *args, size_t args_bytes);
void shim_launch_through(shim_launcher instead);
/* The kernels that were launched since the last call, a blank behind each name. */
const char *shim_launched(void);
/* A stream that captures (1), or no longer (0). */
void shim_capture(cudaStream_t stream, int on);
/* Live allocations and their bytes; the number of launches since the library was loaded. */
size_t shim_live(size_t *bytes);
uint64_t shim_launches(void);

#ifdef __cplusplus
}
#endif
