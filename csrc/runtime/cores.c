/* cores.c - the default number of threads: one for each usable core.
 *
 * Counted are
 *
 *   - the CPUs in the affinity mask of the process (taskset, cpusets), which the caller gives,
 *   - of these only the fast ones, if there are two kinds (hybrid processors, big.LITTLE): on Intel
 *     those of /sys/devices/cpu_core, elsewhere those whose cpu_capacity is at min_limit 3/4 of the
 *     largest (Linux, Documentation/scheduler/sched-capacity.rst). A matrix product ends with its
 *     slowest chunk, and a slow core takes two to four times as long for one;
 *   - of the hyper-threads (SMT siblings) of a core only one. Generation waits for memory, and two
 *     siblings have no more requests in flight than one; in a GEMM they share the execution units,
 *     which are the limit, and the first-level cache;
 *   - at most the CPU quota of the control group and of all groups above it (cpu.max of version 2,
 *     cpu.cfs_quota_us of version 1; Linux, Documentation/admin-guide/cgroup-v2.rst and cgroup-v1),
 *     rounded up. With more threads than that, a thread stops in the middle of a chunk when the
 *     quota of the period is used up, and all others wait for it.
 *
 * A file that is absent, unreadable or malformed is ignored. No thread is bound to a CPU or a NUMA
 * node: the scheduler already prefers fast CPUs and idle cores, and knows the other processes. */
#define _DEFAULT_SOURCE /* O_CLOEXEC */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "api/runtime.h"

enum { MAX_CPU = 8192, MAX_FILE = 8192, MAX_PATH = 4096, MAX_CAPACITY = 1 << 20, NO_LIMIT = 1024 };
/* with more CPUs than this their capacities are not read: servers have one kind */
enum { MAX_MIXED = 64 };

/* Reads a file as a string of at most MAX_FILE - 1 bytes; 0: it cannot be read, or is empty. */
__attribute__((format(printf, 2, 3))) static int read_file(char text[MAX_FILE], const char *name,
                                                           ...)
{
    char path[MAX_PATH];
    va_list args;
    va_start(args, name);
    const int n = vsnprintf(path, sizeof path, name, args);
    va_end(args);
    const int fd = n > 0 && n < MAX_PATH ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    ssize_t length = 0, got = fd < 0 ? 0 : 1;
    while (got > 0 && length < MAX_FILE - 1) {
        got = read(fd, text + length, (size_t)(MAX_FILE - 1 - length));
        length += got > 0 ? got : 0;
    }
    if (fd >= 0)
        close(fd);
    text[length] = 0;
    return length > 0;
}

/* Parses the number at *p and moves *p behind it; -1: no number. */
static int64_t parse_number(const char **p)
{
    char *end;
    if (**p < '0' || **p > '9')
        return -1;
    const int64_t value = strtoll(*p, &end, 10); /* saturates at INT64_MAX */
    *p = end;
    return value;
}

/* ---- control groups ---- */

/* The CPU quota of group `dir`, in CPUs, rounded up. */
static int64_t limit_of_group(const char *dir, int version)
{
    char text[MAX_FILE];
    const char *p = text;
    int64_t quota, period;
    if (!read_file(text, version == 2 ? "%s/cpu.max" : "%s/cpu.cfs_quota_us", dir))
        return NO_LIMIT;
    quota = parse_number(&p); /* "max" and -1: no quota */
    if (version == 2)
        p += *p == ' ';
    else if ((*p && *p != '\n') || !read_file(text, "%s/cpu.cfs_period_us", dir))
        return NO_LIMIT;
    else
        p = text;
    period = parse_number(&p);
    if (quota < 1 || period < 1 || (*p && *p != '\n'))
        return NO_LIMIT;
    const int64_t limit = quota / period + (quota % period != 0);
    return limit < NO_LIMIT ? limit : NO_LIMIT;
}

/* The smallest quota of group `path` below `mount` and of the visible groups above it. In a
 * container the path may exist only on the host, or lead out of the namespace ("/.."); then the
 * mount itself is the group, or the nearest group above. */
static int64_t limit_of_groups(const char *mount, const char *path, int version)
{
    char dir[MAX_PATH];
    const size_t top = strlen(mount);
    int64_t min_limit = NO_LIMIT;
    if (*path != '/' || !path[1] || strstr(path, "/.."))
        path = "";
    if (snprintf(dir, sizeof dir, "%s%s", mount, path) >= MAX_PATH)
        return NO_LIMIT;
    for (char *end = dir + strlen(dir); end; end = strrchr(dir + top, '/')) {
        *end = 0;
        const int64_t limit = limit_of_group(dir, version);
        min_limit = limit < min_limit ? limit : min_limit;
    }
    return min_limit;
}

/* Is "cpu" in a list such as "cpu,cpuacct"? */
static int is_cpu(const char *controllers)
{
    while (controllers
           && (strncmp(controllers, "cpu", 3) || (controllers[3] && controllers[3] != ',')))
        controllers = strchr(controllers, ',') ? strchr(controllers, ',') + 1 : NULL;
    return controllers != NULL;
}

/* /proc/self/cgroup has lines number:controllers:path. Version 2 has one line, without controllers;
 * it is mounted alone or next to version 1. */
static int64_t limit_of_quotas(const char *proc, const char *sys)
{
    char text[MAX_FILE], mount[MAX_PATH];
    int64_t min_limit = NO_LIMIT;
    read_file(text, "%s/self/cgroup", proc);
    for (char *line = text, *next; *line; line = next) {
        char *end = strchr(line, '\n'), *controllers = strchr(line, ':'),
             *path = controllers ? strchr(controllers + 1, ':') : NULL;
        next = end ? end + 1 : strchr(line, 0);
        if (!path || (end && path > end))
            continue;
        if (end)
            *end = 0;
        *path++ = 0;
        const int version = *++controllers ? 1 : 2;
        const char *const mounts[] = {version == 2 ? "" : "/cpu",
                                      version == 2 ? "/unified" : "/cpu,cpuacct"};
        for (int i = 0; i < 2 && (version == 2 || is_cpu(controllers)); i++) {
            const int n = snprintf(mount, sizeof mount, "%s/fs/cgroup%s", sys, mounts[i]);
            const int64_t limit = n < MAX_PATH ? limit_of_groups(mount, path, version) : NO_LIMIT;
            min_limit = limit < min_limit ? limit : min_limit;
        }
    }
    return min_limit;
}

/* ---- CPUs ---- */

/* Parses a list of CPUs such as 0-3,8 and sets is_in, if not NULL, for each; 0: malformed, and only
 * the CPUs before the error are set. */
static int parse_cpu_list(uint8_t is_in[MAX_CPU], const char *list)
{
    do {
        const int64_t first = parse_number(&list);
        int64_t last = first;
        if (*list == '-' && first >= 0) {
            list++;
            last = parse_number(&list);
        }
        if (first < 0 || last < first || last > INT32_MAX)
            return 0;
        for (int64_t cpu = first; is_in && cpu <= last && cpu < MAX_CPU; cpu++)
            is_in[cpu] = 1;
    } while (*list++ == ',');
    return !list[-1] || list[-1] == '\n';
}

/* Copies the fast ones of n CPUs to `fast`. Returns their number. */
static int32_t find_fast_cpus(int32_t fast[MAX_CPU], const char *sys, const int32_t *cpu, int32_t n)
{
    char text[MAX_FILE];
    uint8_t is_core[MAX_CPU] = {0};
    int64_t capacity[MAX_MIXED] = {0}, largest = 0;
    int32_t n_fast = 0;
    const int has_list = read_file(text, "%s/devices/cpu_core/cpus", sys)
        && parse_cpu_list(NULL, text) && parse_cpu_list(is_core, text);
    for (int32_t i = 0; !has_list && n <= MAX_MIXED && i < n; i++) {
        const char *p = text;
        if (read_file(text, "%s/devices/system/cpu/cpu%d/cpu_capacity", sys, (int)cpu[i]))
            capacity[i] = parse_number(&p);
        /* this kernel does not report capacities; the first CPU shows it */
        if (capacity[i] < 1 || capacity[i] >= MAX_CAPACITY || (*p && *p != '\n')) {
            memset(capacity, 0, sizeof capacity);
            largest = 0;
            break;
        }
        largest = capacity[i] > largest ? capacity[i] : largest;
    }
    for (int32_t i = 0; i < n; i++)
        if (has_list ? is_core[cpu[i]] : n > MAX_MIXED || capacity[i] * 4 >= largest * 3)
            fast[n_fast++] = cpu[i];
    if (!n_fast) /* the mask has only slow CPUs */
        memcpy(fast, cpu, (size_t)(n_fast = n) * sizeof *cpu);
    return n_fast;
}

/* The number of cores that n CPUs belong to; stops counting at max_cores. */
static int32_t count_cores(const char *sys, const int32_t *cpu, int32_t n, int64_t max_cores)
{
    char text[MAX_FILE];
    uint8_t is_counted[MAX_CPU] = {0};
    int32_t n_core = 0;
    if (read_file(text, "%s/devices/system/cpu/smt/active", sys) && *text == '0')
        return n;
    for (int32_t i = 0; i < n && n_core < max_cores; i++)
        if (!is_counted[cpu[i]]) {
            n_core++;
            if (read_file(text, "%s/devices/system/cpu/cpu%d/topology/thread_siblings_list", sys,
                          (int)cpu[i])
                && parse_cpu_list(NULL, text))
                parse_cpu_list(is_counted, text);
        }
    return n_core;
}

int32_t threads_default(const char *proc, const char *sys, const int32_t *cpu, int32_t n_cpu)
{
    int32_t known[MAX_CPU], fast[MAX_CPU], n = 0;
    for (int32_t i = 0; i < n_cpu && n < MAX_CPU; i++)
        if (cpu[i] >= 0 && cpu[i] < MAX_CPU)
            known[n++] = cpu[i];
    const int64_t max_cores = limit_of_quotas(proc, sys);
    n = count_cores(sys, fast, find_fast_cpus(fast, sys, known, n), max_cores);
    return n < 1 ? 1 : n < max_cores ? n : (int32_t)max_cores;
}
