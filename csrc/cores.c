/* How many threads a call gets that names none. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* sched_getaffinity */
#endif
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "threads.h"

enum { PATH_BYTES = PATH_MAX + 64 }; /* a directory and a file name */

/* The cores of "quota period" at a path, 0 where there is no limit. cgroup v2 has both numbers in cpu.max ("max" for
   none), v1 has cpu.cfs_quota_us (-1 for none) and cpu.cfs_period_us. */
static int read_first_numbers(const char *path, long long *values, int count) {
    FILE *f = fopen(path, "r");
    int got = 0;
    if (!f) return 0;
    while (got < count && fscanf(f, "%lld", &values[got]) == 1) got++;
    fclose(f);
    return got;
}
static int quota_of(const char *directory, int version) {
    char path[PATH_BYTES];
    long long v[2] = {0, 0};
    if (version == 2) {
        snprintf(path, sizeof path, "%s/cpu.max", directory);
        if (read_first_numbers(path, v, 2) != 2) return 0;
    } else {
        snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", directory);
        if (read_first_numbers(path, v, 1) != 1) return 0;
        snprintf(path, sizeof path, "%s/cpu.cfs_period_us", directory);
        if (read_first_numbers(path, v + 1, 1) != 1) return 0;
    }
    if (v[0] <= 0 || v[1] <= 0) return 0;
    long long cores = (v[0] - 1) / v[1] + 1; /* rounded up; a sum could overflow */
    return cores > CBQ_MAX_THREADS ? CBQ_MAX_THREADS : (int)cores;
}

/* The tightest quota from `group` up to the root of the mount: any of them throttles. */
static int tightest_quota(const char *mount, char *group, int version) {
    char directory[PATH_MAX];
    int cores = 0;
    for (;;) {
        snprintf(directory, sizeof directory, "%s%s", mount, group);
        int q = quota_of(directory, version);
        if (q > 0 && (cores == 0 || q < cores)) cores = q;
        char *slash = strrchr(group, '/');
        if (!slash) return cores;
        *slash = 0;
    }
}

int cbq_cgroup_cpus(const char *membership, const char *mount) {
    char line[PATH_MAX], v1_mount[PATH_MAX];
    int cores = 0;
    FILE *f = fopen(membership, "r");
    if (!f) return 0;
    while (fgets(line, sizeof line, f)) { /* number:controllers:/path */
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group) continue;
        *group++ = 0;
        controllers++;
        group[strcspn(group, "\n")] = 0;
        int q = 0;
        if (*controllers == 0) {
            q = tightest_quota(mount, group, 2);
        } else if (strcmp(controllers, "cpu") == 0 || strncmp(controllers, "cpu,", 4) == 0 || strstr(controllers, ",cpu,") ||
                   (strlen(controllers) > 4 && strcmp(controllers + strlen(controllers) - 4, ",cpu") == 0)) {
            snprintf(v1_mount, sizeof v1_mount, "%s/cpu", mount);
            q = tightest_quota(v1_mount, group, 1);
        }
        if (q > 0 && (cores == 0 || q < cores)) cores = q;
    }
    fclose(f);
    return cores;
}

static int usable_cores(void) {
    static atomic_int quota = -1; /* read once; the affinity mask may change while the process lives */
    int limit = atomic_load(&quota);
    if (limit < 0) {
        limit = cbq_cgroup_cpus("/proc/self/cgroup", "/sys/fs/cgroup");
        atomic_store(&quota, limit);
    }
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
#if defined(__linux__)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) cores = CPU_COUNT(&set);
#endif
    if (limit > 0 && limit < cores) cores = limit;
    return cores < 1 ? 1 : cores > CBQ_MAX_THREADS ? CBQ_MAX_THREADS : (int)cores;
}

static atomic_int chosen, preset; /* by cbq_set_num_threads and cbq_use_num_threads; 0: nothing */

void cbq_set_num_threads(int n) { atomic_store(&chosen, n); }

cbq_code cbq_use_num_threads(const char *text, cbq_status *st) {
    char *end;
    if (!text) {
        atomic_store(&preset, 0);
        return CBQ_OK;
    }
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < 1 || value > CBQ_MAX_THREADS)
        return cbq_fail(st, CBQ_BAD_VALUE, "CBQUANT_NUM_THREADS: expected a number from 1 to %d, got '%.60s'", CBQ_MAX_THREADS, text);
    atomic_store(&preset, (int)value);
    return CBQ_OK;
}

int cbq_num_threads(void) {
    int n = atomic_load(&chosen);
    if (n == 0) n = atomic_load(&preset);
    return n > 0 ? n : usable_cores();
}
