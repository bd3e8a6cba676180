/* threads.c - the thread pool, with work stealing (chunk stealing).
 *
 * The pool has the caller's thread and n - 1 workers. `parallel` splits a range of items into
 * chunks of `grain` items. Each thread has a range of chunks and runs them in order, so it reads
 * memory in order. A thread without chunks steals from the end of another thread's range (Blumofe &
 * Leiserson 1999, "Scheduling multithreaded computations by work stealing", J. ACM 46(5); there
 * with deques, here with an interval).
 *
 * A range is one 64-bit word: the number of the call, the index behind its last chunk, and the
 * index of its first chunk. A successful compare-and-exchange of the word assigns a chunk to a
 * thread. The call ends when all chunks are finished. The caller never waits for a worker that has
 * no chunk, so a worker that loses its processor on a busy machine costs only its help.
 *
 * An idle worker prefetches what it will read next, if it was told (prefetch_when_idle), then spins
 * for some microseconds, because the next operation of a forward pass follows at once, and then
 * sleeps, so a program that waits for input uses no processor. The caller spins, then yields, then
 * sleeps until the last chunk ends: its worker may have lost its processor and wait for this one.
 * Threads hardly spin if they outnumber the processors. With one thread there is no pool, no atomic
 * operation and no barrier.
 *
 * Workers block the signals of the program, except those of faults, which the kernel sends to the
 * thread that caused them. A forked child has no workers; its pool has one thread. Only one thread
 * at a time may call the functions of api/kernels.h. No thread is pinned: CPU affinity is the
 * user's (taskset), and NUMA placement is the kernel's (first touch).
 *
 * Static state of the C core is here, in isa.c (the chosen instruction set), workspace.c (the
 * workspace of kernels) and guard.c (guarded maps). */
#define _GNU_SOURCE /* sched_getaffinity */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include "api/limits.h"
#include "runtime/threads.h"

enum { CACHE_LINE = 64 };
/* durations; spins between two looks at the clock, each of which costs 20 ns */
enum { SPIN_NS = 50000, YIELD_NS = 2000000, SPINS_PER_LOOK = 32 };
enum { MAX_CHUNKS = 0xffff }; /* of a call: a chunk index has 16 bits */
enum {
    MAX_PREFETCH = 1 << 19, /* bytes: a quarter or half of a second-level cache */
    PREFETCH_STEP = 8 * CACHE_LINE
};

typedef void work_function(const void *, int64_t, int64_t, int32_t);
/* padded: each has a cache line of its own */
typedef struct { _Alignas(CACHE_LINE) atomic_uint_fast64_t v; } counter;
/* what an idle thread prefetches; only the thread itself uses last_p and n_done */
typedef struct {
    _Alignas(CACHE_LINE) atomic_uintptr_t p, n_bytes;
    uintptr_t last_p, n_done; /* bytes at last_p already prefetched */
} prefetch_range;

static struct {
    int32_t n_threads;
    int64_t spin_ns;
    _Atomic(work_function *) work; /* these four change only while all ranges are empty */
    _Atomic(const void *) arg;
    atomic_int_fast64_t n, grain;
    counter call; /* number of the call; a new number starts the workers */
    /* each thread's chunks: call << 32 | end << 16 | begin */
    counter range[MAX_THREADS];
    prefetch_range prefetch[MAX_THREADS];
    counter done;   /* finished chunks of this call */
    counter asleep; /* workers that wait for `wake` */
    counter waits;  /* the caller waits for `end` */
    pthread_mutex_t lock;
    pthread_cond_t wake, end;
} pool = {.n_threads = 1,
          .lock = PTHREAD_MUTEX_INITIALIZER,
          .wake = PTHREAD_COND_INITIALIZER,
          .end = PTHREAD_COND_INITIALIZER};

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Runs a chunk of the range of thread `from`: the first chunk if `from` is `thread` itself, else
 * the last (stealing). Returns 0 if the range is empty. All fields read between the load of the
 * range and the exchange belong to one call: the range of a later call has another number, so the
 * exchange would fail. */
static int run_chunk(int32_t from, int32_t thread)
{
    uint_fast64_t range = atomic_load(&pool.range[from].v), begin, end, next;
    work_function *work;
    const void *arg;
    int64_t n, grain;
    do {
        begin = range & MAX_CHUNKS;
        end = range >> 16 & MAX_CHUNKS;
        if (begin == end)
            return 0;
        work = atomic_load(&pool.work);
        arg = atomic_load(&pool.arg);
        n = atomic_load(&pool.n);
        grain = atomic_load(&pool.grain);
        next = from == thread ? range + 1 : range - (1 << 16);
    } while (!atomic_compare_exchange_weak(&pool.range[from].v, &range, next));
    const int64_t first = (int64_t)(from == thread ? begin : end - 1) * grain;
    work(arg, first, first + grain < n ? first + grain : n, thread);
    atomic_fetch_add(&pool.done.v, 1);
    if (atomic_load(&pool.waits.v)) {
        pthread_mutex_lock(&pool.lock);
        pthread_cond_signal(&pool.end);
        pthread_mutex_unlock(&pool.lock);
    }
    return 1;
}

static void run_chunks(int32_t thread)
{
    for (int32_t i = 0; i < pool.n_threads; i++)
        while (run_chunk((thread + i) % pool.n_threads, thread))
            ;
}

static uint_fast64_t call_number(void) { return atomic_load(&pool.call.v); }

/* Conditions to wait for. */
static int has_call(uint_fast64_t seen) { return call_number() != seen; }
static int is_done(uint_fast64_t n_chunk) { return atomic_load(&pool.done.v) == n_chunk; }
static void yield(void) { sched_yield(); }

/* Prefetches the bytes of prefetch_when_idle, from where the thread last stopped, until the
 * condition holds. A prefetch never faults, so p and n_bytes may belong to different calls. */
static void prefetch_until(int32_t thread, int condition(uint_fast64_t), uint_fast64_t x)
{
    prefetch_range *m = &pool.prefetch[thread];
    const uintptr_t p = atomic_load(&m->p), n_bytes = atomic_load(&m->n_bytes);
    if (m->last_p != p)
        m->last_p = p, m->n_done = 0;
    for (; pool.spin_ns && m->n_done < n_bytes && !condition(x); m->n_done += PREFETCH_STEP)
        for (int i = 0; i < PREFETCH_STEP; i += CACHE_LINE)
            __builtin_prefetch((const char *)p + m->n_done + i, 0, 2);
}

void prefetch_when_idle(int32_t t, const void *p, int64_t n_bytes)
{
    atomic_store(&pool.prefetch[t].p, (uintptr_t)p);
    atomic_store(&pool.prefetch[t].n_bytes,
                 (uintptr_t)(n_bytes < MAX_PREFETCH ? n_bytes : MAX_PREFETCH));
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Does the condition hold within ns? Measured by the clock: the duration of a pause instruction
 * differs among processors by a factor of 50. */
static inline int spin_until(int condition(uint_fast64_t), uint_fast64_t x, void pause(void),
                             int64_t ns)
{
    if (condition(x))
        return 1;
    const int64_t end = now_ns() + ns;
    do
        for (int i = 0; i < SPINS_PER_LOOK; i++) {
            if (condition(x))
                return 1;
            pause();
        }
    while (now_ns() < end);
    return condition(x);
}

static void *worker(void *arg)
{
    uint_fast64_t seen = 0;
    for (;;) {
        prefetch_until((int32_t)(intptr_t)arg, has_call, seen);
        if (!spin_until(has_call, seen, relax, pool.spin_ns)) {
            pthread_mutex_lock(&pool.lock);
            atomic_fetch_add(&pool.asleep.v, 1);
            while (!has_call(seen))
                pthread_cond_wait(&pool.wake, &pool.lock);
            atomic_fetch_sub(&pool.asleep.v, 1);
            pthread_mutex_unlock(&pool.lock);
        }
        seen = call_number();
        run_chunks((int32_t)(intptr_t)arg);
    }
    return NULL;
}

/* In a forked child only the thread that forked exists. */
static void reset_in_child(void)
{
    atomic_store(&pool.call.v, 0);
    /* another thread than the one that forked may have made a call */
    for (int32_t t = 0; t < pool.n_threads; t++)
        atomic_store(&pool.range[t].v, 0);
    pool.n_threads = 1;
    atomic_store(&pool.asleep.v, 0);
    atomic_store(&pool.waits.v, 0);
    pool.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    pool.wake = pool.end = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
}

/* Processors that this process may use: its CPU affinity. */
static int32_t count_processors(void)
{
#if defined(__linux__)
    cpu_set_t set;
    if (!sched_getaffinity(0, sizeof set, &set)) /* fails if there are more than the set holds */
        return CPU_COUNT(&set);
#endif
    return MAX_THREADS;
}

/* Blocks all signals in workers, except those of faults: if blocked, they would end the process
 * without calling a handler (guard.c has one). */
static void block_signals(sigset_t *before)
{
    static const int faults[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGABRT};
    sigset_t set;
    sigfillset(&set);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&set, faults[i]);
    pthread_sigmask(SIG_SETMASK, &set, before);
}

int32_t threads_start(int32_t n)
{
    static int registered;
    if (n < 1 || n > MAX_THREADS || pool.n_threads != 1)
        return n == pool.n_threads ? 0 : -1;
    pthread_attr_t attr;
    sigset_t before;
    if (n == 1)
        return 0;
    if (!registered && pthread_atfork(NULL, NULL, reset_in_child))
        return -1;
    registered = 1;
    if (pthread_attr_init(&attr))
        return -1;
    pthread_attr_setstacksize(&attr, 1 << 20);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pool.spin_ns = n <= count_processors() ? SPIN_NS : 0;
    block_signals(&before);
    int32_t started = 1;
    for (; started < n; started++) {
        pthread_t id;
        if (pthread_create(&id, &attr, worker, (void *)(intptr_t)started))
            break;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    pool.n_threads = started; /* fewer only if the system refused */
    return started == n ? 0 : -1;
}

int32_t threads_count(void) { return pool.n_threads; }

/* Wakes n or more sleeping workers, or all. */
static void wake_workers(uint_fast64_t n)
{
    const uint_fast64_t asleep = atomic_load(&pool.asleep.v);
    if (!asleep)
        return;
    pthread_mutex_lock(&pool.lock);
    if (n < asleep)
        for (uint_fast64_t i = 0; i < n; i++)
            pthread_cond_signal(&pool.wake);
    else
        pthread_cond_broadcast(&pool.wake);
    pthread_mutex_unlock(&pool.lock);
}

static void sleep_until_done(uint_fast64_t n_chunk)
{
    pthread_mutex_lock(&pool.lock);
    atomic_store(&pool.waits.v, 1);
    while (!is_done(n_chunk))
        pthread_cond_wait(&pool.end, &pool.lock);
    atomic_store(&pool.waits.v, 0);
    pthread_mutex_unlock(&pool.lock);
}

/* The smallest grain, `grain` or more, that gives at most MAX_CHUNKS chunks. */
static int64_t min_grain(int64_t n, int64_t grain)
{
    return grain > n / MAX_CHUNKS ? grain : n / MAX_CHUNKS + 1;
}

static uint_fast64_t first_chunk(uint_fast64_t n_chunk, uint_fast64_t t)
{
    return t * n_chunk / (uint_fast64_t)pool.n_threads;
}

int64_t first_item(int64_t n, int64_t grain, int32_t t)
{
    grain = min_grain(n, grain);
    return (int64_t)first_chunk((uint_fast64_t)((n + grain - 1) / grain), (uint_fast64_t)t) * grain;
}

void parallel(work_function *work, const void *arg, int64_t n, int64_t grain)
{
    if (pool.n_threads == 1 || n <= grain) {
        if (n > 0)
            work(arg, 0, n, 0);
        return;
    }
    grain = min_grain(n, grain);
    const uint_fast64_t n_chunk = (uint_fast64_t)((n + grain - 1) / grain),
                        call = (call_number() + 1) & UINT32_MAX;
    atomic_store(&pool.work, work);
    atomic_store(&pool.arg, arg);
    atomic_store(&pool.n, n);
    atomic_store(&pool.grain, grain);
    atomic_store(&pool.done.v, 0);
    for (uint_fast64_t t = 0; t < (uint_fast64_t)pool.n_threads; t++) {
        const uint_fast64_t begin = first_chunk(n_chunk, t), end = first_chunk(n_chunk, t + 1);
        atomic_store_explicit(&pool.range[t].v, call << 32 | end << 16 | begin,
                              memory_order_release);
    }
    atomic_store(&pool.call.v, call);
    wake_workers(n_chunk - 1);
    run_chunks(0);
    prefetch_until(0, is_done, n_chunk);
    if (!spin_until(is_done, n_chunk, relax, pool.spin_ns)
        && !spin_until(is_done, n_chunk, yield, YIELD_NS))
        sleep_until_done(n_chunk);
}
