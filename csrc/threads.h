/* Threads: one pool for the process, created at the first large job. After one, a helper looks for the next for 10 to 50
   microseconds before it is parked on a condition variable.

   Why not OpenMP: a forked child that inherits libgomp's idle team hangs at its next parallel region, two runtimes
   (libgomp and libomp) in one process fight over the cores, and the library would need one of them at run time. */
#pragma once
#include <stdint.h>

#include "status.h"

#define CBQ_MAX_THREADS 512

/* Work on items begin..end-1. Results must not depend on how 0..n-1 is cut. */
typedef void cbq_work_fn(void *context, int64_t begin, int64_t end);

/* Calls work over 0..n-1, on the caller's thread and up to threads - 1 others; alone, in one piece. Where helpers are busy or cannot be
   started, the caller does more of it; it always ends.
   Pieces are whole grains (but the last), and the first of them are large, because most work is at the speed of memory. New memory is given
   in pages of up to 2 MiB, and two threads at one page would both wait for it to be cleared: 64 MiB of it on Zen 5, in times of a fill,
   1.05 to 1.17 over the formats with pieces of 256 KiB, 1.0 to 1.04 with those of 4 MiB and more. What is read is asked for in advance by
   the processor, which begins anew with each piece: one row of x times q4_0 in memory 112 G operations/s with pieces of a microsecond,
   157 with large ones. The last pieces are a grain, so that threads of unlike speed end together. */
void cbq_parallel(int64_t n, int64_t grain, int threads, cbq_work_fn *work, void *context);

/* The threads of a call that names none: cbq_set_num_threads, else cbq_use_num_threads, else the cores that the affinity
   mask and the cgroup quota leave. */
int cbq_num_threads(void);

/* n >= 1, or 0 for the default again. */
void cbq_set_num_threads(int n);

/* The text of CBQUANT_NUM_THREADS, or NULL for none; a status where it is no number from 1 up. */
cbq_code cbq_use_num_threads(const char *text, cbq_status *st);

/* Threads that the pool holds now, for tests. */
int cbq_pool_size(void);

/* Whole cores that the cgroup of this process may use (quota / period, rounded up), or 0 where nothing limits it.
   `membership` is /proc/self/cgroup and `mount` is /sys/fs/cgroup, but for tests. */
int cbq_cgroup_cpus(const char *membership, const char *mount);
