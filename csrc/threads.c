/* threads.c - the pool.
 *
 * n - 1 threads beside the caller's.  Work is a range of items, handed out in pieces
 * by an atomic counter, so a thread that the system holds up delays one piece only.
 * A waiting thread spins for some microseconds (the next product of a forward pass
 * comes at once) and then sleeps, so a tool that waits for its input uses no
 * processor.  With one thread there is no pool, no atomic and no barrier.
 * Only one thread at a time may call what kernels.h offers.  A forked child has no workers
 * and begins with a pool of one.
 * The only state of the C core besides the chosen instruction set and guard.c's maps is here. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include "internal.h"

enum { MAX_THREADS = 1024, SPINS = 4000, CACHE_LINE = 64 };

typedef struct { _Alignas(CACHE_LINE) atomic_int_fast64_t v; } counter; /* padded: no two on one cache line */

static struct {
    int32_t n_threads;
    void (*work)(const void *, int64_t, int64_t, int32_t);
    const void *arg;
    int64_t n, grain;
    counter round;   /* number of the current call; a change starts the workers */
    counter next;    /* first item nobody has taken */
    counter busy;    /* workers that have not finished this round */
    counter asleep;  /* workers in the condition variable */
    pthread_mutex_t lock;
    pthread_cond_t wake;
} pool = {.n_threads = 1, .lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void take_pieces(int32_t thread)
{
    for (;;) {
        const int64_t begin = atomic_fetch_add(&pool.next.v, pool.grain);
        if (begin >= pool.n)
            return;
        pool.work(pool.arg, begin, begin + pool.grain < pool.n ? begin + pool.grain : pool.n, thread);
    }
}

static void *worker(void *arg)
{
    const int32_t thread = (int32_t)(intptr_t)arg;
    int64_t seen = 0;
    for (;;) {
        for (int32_t spin = 0; spin < SPINS && atomic_load(&pool.round.v) == seen; spin++)
            relax();
        if (atomic_load(&pool.round.v) == seen) {
            pthread_mutex_lock(&pool.lock);
            atomic_fetch_add(&pool.asleep.v, 1);
            while (atomic_load(&pool.round.v) == seen)
                pthread_cond_wait(&pool.wake, &pool.lock);
            atomic_fetch_sub(&pool.asleep.v, 1);
            pthread_mutex_unlock(&pool.lock);
        }
        seen++;
        take_pieces(thread);
        atomic_fetch_sub(&pool.busy.v, 1);
    }
    return NULL;
}

static void forget(void) /* in a forked child: only the thread that forked lives on */
{
    pool.n_threads = 1;
    atomic_store(&pool.round.v, 0);
    atomic_store(&pool.asleep.v, 0);
    pool.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    pool.wake = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
}

int32_t threads_start(int32_t n)
{
    static int registered;
    if (n < 1 || n > MAX_THREADS || pool.n_threads != 1)
        return n == pool.n_threads ? 0 : -1;
    pthread_attr_t attr;
    if (n == 1)
        return 0;
    if (!registered && pthread_atfork(NULL, NULL, forget))
        return -1;
    registered = 1;
    if (pthread_attr_init(&attr))
        return -1;
    pthread_attr_setstacksize(&attr, 1 << 20);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    int32_t started = 1;
    for (; started < n; started++) {
        pthread_t id;
        if (pthread_create(&id, &attr, worker, (void *)(intptr_t)started))
            break;
    }
    pthread_attr_destroy(&attr);
    pool.n_threads = started; /* fewer than asked for only where the system refused */
    return started == n ? 0 : -1;
}

int32_t threads_count(void) { return pool.n_threads; }

void parallel(void (*work)(const void *, int64_t, int64_t, int32_t), const void *arg, int64_t n, int64_t grain)
{
    if (pool.n_threads == 1 || n <= grain) {
        if (n > 0)
            work(arg, 0, n, 0);
        return;
    }
    pool.work = work;
    pool.arg = arg;
    pool.n = n;
    pool.grain = grain;
    atomic_store(&pool.next.v, 0);
    atomic_store(&pool.busy.v, pool.n_threads - 1);
    atomic_fetch_add(&pool.round.v, 1);
    if (atomic_load(&pool.asleep.v)) {
        pthread_mutex_lock(&pool.lock);
        pthread_cond_broadcast(&pool.wake);
        pthread_mutex_unlock(&pool.lock);
    }
    take_pieces(0);
    for (int32_t spin = 0; atomic_load(&pool.busy.v); spin++)
        if (spin < SPINS)
            relax();
        else
            sched_yield(); /* a worker is off its processor: give it ours */
}
