/* guard.c - exit status 74 and one line on stderr, not SIGBUS, if a mapped file is truncated.
 *
 * Reading a page of an mmap beyond the end of its file, or a page that the disk cannot deliver,
 * raises SIGBUS. For registered maps the handler turns the signal into an I/O error. It may run in
 * any thread, at any instruction, so it does three async-signal-safe things only (POSIX.1-2017,
 * 2.4.3): it looks up the address in a fixed table, writes a line that was made at registration
 * (write(2)), and ends the process (_exit(2)). Any other fault gets the default action.
 *
 * The table is static. A slot is valid while its n_bytes is not 0; n_bytes is stored last. */
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
/* a spin lock for changes of the table; the handler never takes it */
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

/* In the thread that registers first the handler has a stack of its own. In other threads it runs
 * on the thread's stack, which is intact: the fault is in a map, not a stack overflow. */
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
