/* cores.c - how many threads a process should have that was not told.
 *
 * One for each core that it may use, as far as the kernel says so:
 *
 *   - of the CPUs in its affinity mask (taskset, cpusets), which the caller gives,
 *   - those of the fast kind, where there are two: of /sys/devices/cpu_core on Intel, elsewhere
 *     those whose cpu_capacity is at least 3/4 of the largest (Linux,
 *     Documentation/scheduler/sched-capacity.rst).  The end of a product waits for the slowest
 *     piece, and a core of the other kind takes two to four times as long for one;
 *   - of the siblings in a core (hyper-threads) one: writing waits for memory, of which a core asks
 *     no more with two, and in products of many tokens they would share the units that are the
 *     limit, and the first-level cache;
 *   - and no more than the CPU quotas of its control group and of all above allow (cpu.max of
 *     version 2, cpu.cfs_quota_us of version 1; Linux, Documentation/admin-guide/cgroup-v2.rst and
 *     cgroup-v1), rounded up: of threads beyond that, those that hold a piece when the quota is
 *     used up stand still for the rest of the period, and the others wait.
 *
 * A file that is absent, unreadable or malformed says nothing.  No thread is bound to a CPU: the
 * scheduler prefers fast ones and whole cores by itself, and knows what else runs. */
#define _DEFAULT_SOURCE /* O_CLOEXEC */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "api/runtime.h"

enum { MAX_CPU = 8192, MAX_FILE = 8192, MAX_PATH = 4096, MAX_CAPACITY = 1 << 20, NO_LIMIT = 1024 };
/* more CPUs than this are not asked one by one for their kind: servers have one */
enum { MAX_MIXED = 64 };

/* The file of that name as a string, cut where it is too long; 0: it has none. */
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

/* The number that *p points to, and *p behind it; -1: there is none. */
static int64_t number(const char **p)
{
    char *end;
    if (**p < '0' || **p > '9')
        return -1;
    const int64_t value = strtoll(*p, &end, 10); /* too large a one ends at the largest */
    *p = end;
    return value;
}

/* ---- control groups
 * ------------------------------------------------------------------------------ */

/* Microseconds of a period that group `dir` allows, in CPUs. */
static int64_t limit_of_group(const char *dir, int version)
{
    char text[MAX_FILE];
    const char *p = text;
    int64_t quota, period;
    if (!read_file(text, version == 2 ? "%s/cpu.max" : "%s/cpu.cfs_quota_us", dir))
        return NO_LIMIT;
    quota = number(&p); /* "max" and -1 are none */
    if (version == 2)
        p += *p == ' ';
    else if ((*p && *p != '\n') || !read_file(text, "%s/cpu.cfs_period_us", dir))
        return NO_LIMIT;
    else
        p = text;
    period = number(&p);
    if (quota < 1 || period < 1 || (*p && *p != '\n'))
        return NO_LIMIT;
    const int64_t limit = quota / period + (quota % period != 0);
    return limit < NO_LIMIT ? limit : NO_LIMIT;
}

/* The least limit of group `path` below `mount` and of all above it that can be seen.  In a
 * container the path may be one that only the host has, or lead out of its namespace ("/.."): the
 * mount itself is then the group, or the nearest above. */
static int64_t limit_of_groups(const char *mount, const char *path, int version)
{
    char dir[MAX_PATH];
    const size_t top = strlen(mount);
    int64_t least = NO_LIMIT;
    if (*path != '/' || !path[1] || strstr(path, "/.."))
        path = "";
    if (snprintf(dir, sizeof dir, "%s%s", mount, path) >= MAX_PATH)
        return NO_LIMIT;
    for (char *end = dir + strlen(dir); end; end = strrchr(dir + top, '/')) {
        *end = 0;
        const int64_t limit = limit_of_group(dir, version);
        least = limit < least ? limit : least;
    }
    return least;
}

/* Whether "cpu" is in a list such as "cpu,cpuacct". */
static int is_cpu(const char *controllers)
{
    while (controllers
           && (strncmp(controllers, "cpu", 3) || (controllers[3] && controllers[3] != ',')))
        controllers = strchr(controllers, ',') ? strchr(controllers, ',') + 1 : NULL;
    return controllers != NULL;
}

/* /proc/self/cgroup has lines number:controllers:path, version 2 none of the controllers; it is
 * mounted alone or beside version 1. */
static int64_t limit_of_quotas(const char *proc, const char *sys)
{
    char text[MAX_FILE], mount[MAX_PATH];
    int64_t least = NO_LIMIT;
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
            least = limit < least ? limit : least;
        }
    }
    return least;
}

/* ---- CPUs
 * ------------------------------------------------------------------------------------------ */

/* Whether that is a list of CPUs such as 0-3,8; they are marked, where is_in is not NULL, up to
 * where it ceases to be one. */
static int mark(uint8_t is_in[MAX_CPU], const char *list)
{
    do {
        const int64_t first = number(&list);
        int64_t last = first;
        if (*list == '-' && first >= 0) {
            list++;
            last = number(&list);
        }
        if (first < 0 || last < first || last > INT32_MAX)
            return 0;
        for (int64_t cpu = first; is_in && cpu <= last && cpu < MAX_CPU; cpu++)
            is_in[cpu] = 1;
    } while (*list++ == ',');
    return !list[-1] || list[-1] == '\n';
}

/* Those of n CPUs that are of the fast kind: how many. */
static int32_t fast_ones(int32_t fast[MAX_CPU], const char *sys, const int32_t *cpu, int32_t n)
{
    char text[MAX_FILE];
    uint8_t is_core[MAX_CPU] = {0};
    int64_t capacity[MAX_MIXED] = {0}, largest = 0;
    int32_t n_fast = 0;
    const int has_list =
        read_file(text, "%s/devices/cpu_core/cpus", sys) && mark(NULL, text) && mark(is_core, text);
    for (int32_t i = 0; !has_list && n <= MAX_MIXED && i < n; i++) {
        const char *p = text;
        if (read_file(text, "%s/devices/system/cpu/cpu%d/cpu_capacity", sys, (int)cpu[i]))
            capacity[i] = number(&p);
        /* usually of the first: this kernel does not tell */
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
    if (!n_fast) /* a mask of slow ones only */
        memcpy(fast, cpu, (size_t)(n_fast = n) * sizeof *cpu);
    return n_fast;
}

/* How many cores n CPUs are in, counted as far as `most`. */
static int32_t count_cores(const char *sys, const int32_t *cpu, int32_t n, int64_t most)
{
    char text[MAX_FILE];
    uint8_t is_counted[MAX_CPU] = {0};
    int32_t n_core = 0;
    if (read_file(text, "%s/devices/system/cpu/smt/active", sys) && *text == '0')
        return n;
    for (int32_t i = 0; i < n && n_core < most; i++)
        if (!is_counted[cpu[i]]) {
            n_core++;
            if (read_file(text, "%s/devices/system/cpu/cpu%d/topology/thread_siblings_list", sys,
                          (int)cpu[i])
                && mark(NULL, text))
                mark(is_counted, text);
        }
    return n_core;
}

int32_t threads_default(const char *proc, const char *sys, const int32_t *cpu, int32_t n_cpu)
{
    int32_t known[MAX_CPU], fast[MAX_CPU], n = 0;
    for (int32_t i = 0; i < n_cpu && n < MAX_CPU; i++)
        if (cpu[i] >= 0 && cpu[i] < MAX_CPU)
            known[n++] = cpu[i];
    const int64_t most = limit_of_quotas(proc, sys);
    n = count_cores(sys, fast, fast_ones(fast, sys, known, n), most);
    return n < 1 ? 1 : n < most ? n : (int32_t)most;
}
