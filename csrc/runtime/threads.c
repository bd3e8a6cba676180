/* threads.c - the pool.
 *
 * n - 1 threads beside the caller's.  Work is a range of items, cut into pieces.  Each thread has
 * its own share of them, in order, so that it reads memory in order too; who is done takes the last
 * pieces of the others' shares.  A ticket holds the number of the call and what is left of a share;
 * who changes it has that piece.  The caller waits for pieces that were taken, never for a thread
 * that took none: on a busy machine a worker off its processor costs nothing but its help. A worker
 * without work asks the memory for what it will read next, if it was told (look_ahead_at), spins
 * for some microseconds (the next product of a forward pass comes at once) and then sleeps, so a
 * tool that waits for its input uses no processor.  The caller, whose last piece is as long as
 * that, spins, then lets others run, and sleeps where a piece takes long: its thread lost its
 * processor, and may be waiting for this one.  Threads that outnumber the processors hardly spin.
 * With one thread there is no pool, no atomic and no barrier. Workers leave signals to the threads
 * of the program; those of a fault come to the thread that made it, as always. Only one thread at a
 * time may call what api/kernels.h offers.  A forked child has no workers and begins with a pool of
 * one. The only state of the C core besides the chosen instruction set, workspace.c's room for
 * activations, keys and values, and guard.c's maps is here. */
#define _GNU_SOURCE /* sched_getaffinity */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include "api/limits.h"
#include "runtime/threads.h"

enum { CACHE_LINE = 64 };
/* how long; looks at the clock, which cost 20 ns, between spins */
enum { SPIN_NS = 50000, YIELD_NS = 2000000, SPINS_PER_LOOK = 32 };
enum { MOST_PIECES = 0xffff };
enum {
    MOST_AHEAD = 1 << 19 /* bytes: half of a second-level cache, or a quarter */,
    AT_ONCE = 8 * CACHE_LINE
};

typedef void work_function(const void *, int64_t, int64_t, int32_t);
/* padded: no two on one cache line */
typedef struct { _Alignas(CACHE_LINE) atomic_uint_fast64_t v; } counter;
/* the thread's own: bytes of `of` asked for */
typedef struct {
    _Alignas(CACHE_LINE) atomic_uintptr_t p, n_bytes;
    uintptr_t of, at;
} memory;

static struct {
    int32_t n_threads;
    int64_t spin_ns;
    _Atomic(work_function *) work; /* these four change only while all shares are empty */
    _Atomic(const void *) arg;
    atomic_int_fast64_t n, grain;
    counter call; /* its number; a new one starts the workers */
    /* of each thread's share: call << 32 | end << 16 | begin, pieces */
    counter ticket[MAX_THREADS];
    memory ahead[MAX_THREADS]; /* what each thread may ask for */
    counter done;              /* pieces of this call that are finished */
    counter asleep;            /* workers in `wake` */
    counter waits;             /* the caller is in `end` */
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

/* Takes a piece of the share of thread `from` and does it; 0: it is empty.  What is read between
 * the load of the ticket and its exchange belongs to one call: had another begun, the ticket would
 * be another and the exchange would fail. */
static int take_piece(int32_t from, int32_t thread)
{
    uint_fast64_t ticket = atomic_load(&pool.ticket[from].v), begin, end, next;
    work_function *work;
    const void *arg;
    int64_t n, grain;
    do {
        begin = ticket & MOST_PIECES;
        end = ticket >> 16 & MOST_PIECES;
        if (begin == end)
            return 0;
        work = atomic_load(&pool.work);
        arg = atomic_load(&pool.arg);
        n = atomic_load(&pool.n);
        grain = atomic_load(&pool.grain);
        next = from == thread ? ticket + 1 : ticket - (1 << 16);
    } while (!atomic_compare_exchange_weak(&pool.ticket[from].v, &ticket, next));
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

static void take_pieces(int32_t thread)
{
    for (int32_t i = 0; i < pool.n_threads; i++)
        while (take_piece((thread + i) % pool.n_threads, thread))
            ;
}

static uint_fast64_t call_number(void) { return atomic_load(&pool.call.v); }

/* What threads wait for. */
static int has_call(uint_fast64_t seen) { return call_number() != seen; }
static int is_done(uint_fast64_t n_piece) { return atomic_load(&pool.done.v) == n_piece; }
static void yield(void) { sched_yield(); }

/* Asks for what look_ahead_at named, from where the thread was interrupted, until the condition
 * comes.  Asking never faults, so that it does not matter if p and n_bytes are of two calls. */
static void look_ahead(int32_t thread, int condition(uint_fast64_t), uint_fast64_t x)
{
    memory *m = &pool.ahead[thread];
    const uintptr_t p = atomic_load(&m->p), n_bytes = atomic_load(&m->n_bytes);
    if (m->of != p)
        m->of = p, m->at = 0;
    for (; pool.spin_ns && m->at < n_bytes && !condition(x); m->at += AT_ONCE)
        for (int i = 0; i < AT_ONCE; i += CACHE_LINE)
            __builtin_prefetch((const char *)p + m->at + i, 0, 2);
}

void look_ahead_at(int32_t t, const void *p, int64_t n_bytes)
{
    atomic_store(&pool.ahead[t].p, (uintptr_t)p);
    atomic_store(&pool.ahead[t].n_bytes, (uintptr_t)(n_bytes < MOST_AHEAD ? n_bytes : MOST_AHEAD));
}

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Whether it came within ns.  A clock, because the pause of processors differs by a factor of 50.
 */
static inline int comes(int condition(uint_fast64_t), uint_fast64_t x, void rest(void), int64_t ns)
{
    if (condition(x))
        return 1;
    const int64_t end = now() + ns;
    do
        for (int i = 0; i < SPINS_PER_LOOK; i++) {
            if (condition(x))
                return 1;
            rest();
        }
    while (now() < end);
    return condition(x);
}

static void *worker(void *arg)
{
    uint_fast64_t seen = 0;
    for (;;) {
        look_ahead((int32_t)(intptr_t)arg, has_call, seen);
        if (!comes(has_call, seen, relax, pool.spin_ns)) {
            pthread_mutex_lock(&pool.lock);
            atomic_fetch_add(&pool.asleep.v, 1);
            while (!has_call(seen))
                pthread_cond_wait(&pool.wake, &pool.lock);
            atomic_fetch_sub(&pool.asleep.v, 1);
            pthread_mutex_unlock(&pool.lock);
        }
        seen = call_number();
        take_pieces((int32_t)(intptr_t)arg);
    }
    return NULL;
}

static void forget(void) /* in a forked child: only the thread that forked lives on */
{
    atomic_store(&pool.call.v, 0);
    for (int32_t t = 0; t < pool.n_threads;
         t++) /* the thread that forked may not be the one that made a call */
        atomic_store(&pool.ticket[t].v, 0);
    pool.n_threads = 1;
    atomic_store(&pool.asleep.v, 0);
    atomic_store(&pool.waits.v, 0);
    pool.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    pool.wake = pool.end = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
}

static int32_t processors(void) /* that this process may use */
{
#if defined(__linux__)
    cpu_set_t set;
    if (!sched_getaffinity(0, sizeof set,
                           &set)) /* fails where there are more than fit: enough of them */
        return CPU_COUNT(&set);
#endif
    return MAX_THREADS;
}

/* In workers: all but those that a fault raises, which blocked would end the process whatever its
 * handler (guard.c has one). */
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
    if (!registered && pthread_atfork(NULL, NULL, forget))
        return -1;
    registered = 1;
    if (pthread_attr_init(&attr))
        return -1;
    pthread_attr_setstacksize(&attr, 1 << 20);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pool.spin_ns = n <= processors() ? SPIN_NS : 0;
    block_signals(&before);
    int32_t started = 1;
    for (; started < n; started++) {
        pthread_t id;
        if (pthread_create(&id, &attr, worker, (void *)(intptr_t)started))
            break;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    pool.n_threads = started; /* fewer than asked for only where the system refused */
    return started == n ? 0 : -1;
}

int32_t threads_count(void) { return pool.n_threads; }

static void wake_workers(uint_fast64_t n) /* n or more of those that sleep, or all */
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

static void sleep_until_done(uint_fast64_t n_piece)
{
    pthread_mutex_lock(&pool.lock);
    atomic_store(&pool.waits.v, 1);
    while (!is_done(n_piece))
        pthread_cond_wait(&pool.end, &pool.lock);
    atomic_store(&pool.waits.v, 0);
    pthread_mutex_unlock(&pool.lock);
}

/* Of pieces a ticket can tell so many. */
static int64_t grain_at_least(int64_t n, int64_t grain)
{
    return grain > n / MOST_PIECES ? grain : n / MOST_PIECES + 1;
}

static uint_fast64_t first_piece(uint_fast64_t n_piece, uint_fast64_t t)
{
    return t * n_piece / (uint_fast64_t)pool.n_threads;
}

int64_t first_item(int64_t n, int64_t grain, int32_t t)
{
    grain = grain_at_least(n, grain);
    return (int64_t)first_piece((uint_fast64_t)((n + grain - 1) / grain), (uint_fast64_t)t) * grain;
}

void parallel(work_function *work, const void *arg, int64_t n, int64_t grain)
{
    if (pool.n_threads == 1 || n <= grain) {
        if (n > 0)
            work(arg, 0, n, 0);
        return;
    }
    grain = grain_at_least(n, grain);
    const uint_fast64_t n_piece = (uint_fast64_t)((n + grain - 1) / grain),
                        call = (call_number() + 1) & UINT32_MAX;
    atomic_store(&pool.work, work);
    atomic_store(&pool.arg, arg);
    atomic_store(&pool.n, n);
    atomic_store(&pool.grain, grain);
    atomic_store(&pool.done.v, 0);
    for (uint_fast64_t t = 0; t < (uint_fast64_t)pool.n_threads; t++) {
        const uint_fast64_t begin = first_piece(n_piece, t), end = first_piece(n_piece, t + 1);
        atomic_store_explicit(&pool.ticket[t].v, call << 32 | end << 16 | begin,
                              memory_order_release);
    }
    atomic_store(&pool.call.v, call);
    wake_workers(n_piece - 1);
    take_pieces(0);
    look_ahead(0, is_done, n_piece);
    if (!comes(is_done, n_piece, relax, pool.spin_ns) && !comes(is_done, n_piece, yield, YIELD_NS))
        sleep_until_done(n_piece);
}
