/* guard.c - a map whose file was cut: one line on stderr and exit 74, not a signal.
 *
 * Reading a page of a map that lies beyond the end of its file, or that the disk
 * cannot deliver, raises SIGBUS.  A map that is registered here turns that into
 * the error it is.  The handler may run in any thread and at any instruction, so
 * it does three things only, all async-signal-safe (POSIX.1-2017, 2.4.3): it looks
 * the address up in a fixed table, write(2)s a line made when the map was
 * registered, and _exit(2)s.  A fault anywhere else takes the default action.
 *
 * The table is static state, and the slots are published one field at a time: a
 * slot counts from the moment n_bytes is not zero, and that is stored last. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>
#include "api/runtime.h"

enum { N_SLOTS = 1024, LINE_BYTES = 512, STACK_BYTES = 1 << 16, EXIT_IO_ERROR = 74 };

static struct slot {
    _Atomic uintptr_t start;
    _Atomic uint64_t n_bytes; /* 0: free */
    uint32_t line_bytes;
    char line[LINE_BYTES];
} slot[N_SLOTS];
/* held by those who change the table, never by the handler */
static atomic_flag busy = ATOMIC_FLAG_INIT;
static int installed;

static void on_bus_error(int number, siginfo_t *info, void *context)
{
    (void)context;
    if (info->si_code > 0) { /* from the kernel, so si_addr is an address */
        const uintptr_t at = (uintptr_t)info->si_addr;
        for (int i = 0; i < N_SLOTS; i++) {
            const uint64_t n_bytes = atomic_load(&slot[i].n_bytes);
            if (n_bytes && at - atomic_load(&slot[i].start) < n_bytes) {
                (void)!write(2, slot[i].line, slot[i].line_bytes);
                _exit(EXIT_IO_ERROR);
            }
        }
    }
    signal(number, SIG_DFL);
    raise(number); /* pending until this handler returns */
}

/* The handler runs on its own stack in the thread that registers first; another
 * thread's fault is handled on its own, which is in order: it hit a map, not its end. */
static int32_t install(void)
{
    static char stack[STACK_BYTES];
    stack_t now;
    if (sigaltstack(NULL, &now) == 0 && now.ss_flags & SS_DISABLE)
        sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, NULL);
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_ONSTACK};
    action.sa_sigaction = on_bus_error;
    sigemptyset(&action.sa_mask);
    return sigaction(SIGBUS, &action, NULL);
}

int32_t guard_map(const void *p, uint64_t n_bytes, const char *line)
{
    if (!p || !n_bytes)
        return -1;
    while (atomic_flag_test_and_set(&busy))
        ;
    int32_t status = 0;
    if (!installed && !(installed = install() == 0))
        status = -1;
    int i = 0;
    while (i < N_SLOTS && atomic_load(&slot[i].n_bytes))
        i++;
    if (i == N_SLOTS)
        status = -1;
    if (status == 0) {
        size_t n = strnlen(line, LINE_BYTES - 1);
        memcpy(slot[i].line, line, n);
        slot[i].line[n++] = '\n';
        slot[i].line_bytes = (uint32_t)n;
        atomic_store(&slot[i].start, (uintptr_t)p);
        atomic_store(&slot[i].n_bytes, n_bytes);
    }
    atomic_flag_clear(&busy);
    return status;
}

void guard_forget(const void *p)
{
    while (atomic_flag_test_and_set(&busy))
        ;
    for (int i = 0; i < N_SLOTS; i++)
        if (atomic_load(&slot[i].n_bytes) && atomic_load(&slot[i].start) == (uintptr_t)p) {
            atomic_store(&slot[i].n_bytes, 0);
            break;
        }
    atomic_flag_clear(&busy);
}
