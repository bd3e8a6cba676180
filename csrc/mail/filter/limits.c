/* limits.c - the first instructions of mail-filter: are the limits of this process large enough?
 *
 * With a small RLIMIT_DATA or RLIMIT_AS the C library ends the program before main: with status
 * 127, for which pipe(8) bounces the message, or by SIGSEGV.  So the program begins here, at
 * mail_filter_entry (ld -e), which raises soft limits that are too small to the hard ones and ends
 * with 75 if that is not enough.  On machines without this entry main calls limits_check first.
 *
 * Below 140 KiB of data, 1200 KiB of address space or 20 KiB of stack, the kernel ends the program
 * by SIGSEGV before it comes to this file; pipe(8) keeps the message in the queue for a signal.
 *
 * Diagnostics: status 75 and one line on stderr, which names the limit.
 * Guards against a C library that is not initialized: no function of it is called, no stack
 * protector is used (Makefile), and no loop is written that a compiler replaces by a call of
 * memcpy or strlen (volatile). */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "mail/filter/filter.h"

#if defined __linux__ && defined __x86_64__ && defined __LP64__
static long call(long n, long a, long b, long c, long d)
{
    long result;
    register long r10 __asm__("r10") = d;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10)
                     : "rcx", "r11", "memory");
    return result;
}
/* rdx: a function for atexit, for _start; the stack is aligned to 16 bytes. */
__asm__(".text\n.globl mail_filter_entry\n.type mail_filter_entry, @function\n"
        "mail_filter_entry:\n"
        "    endbr64\n"
        "    push %rdx\n"
        "    sub $8, %rsp\n"
        "    call limits_check\n"
        "    add $8, %rsp\n"
        "    pop %rdx\n"
        "    jmp _start\n"
        ".size mail_filter_entry, .-mail_filter_entry\n");
#elif defined __linux__ && defined __aarch64__
static long call(long n, long a, long b, long c, long d)
{
    register long x8 __asm__("x8") = n, x0 __asm__("x0") = a, x1 __asm__("x1") = b,
                     x2 __asm__("x2") = c, x3 __asm__("x3") = d;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
    return x0;
}
/* x0: as rdx above. */
__asm__(".text\n.globl mail_filter_entry\n.type mail_filter_entry, %function\n"
        "mail_filter_entry:\n"
        "    hint 34\n" /* bti c */
        "    stp x0, x30, [sp, -16]!\n"
        "    bl limits_check\n"
        "    ldp x0, x30, [sp], 16\n"
        "    b _start\n"
        ".size mail_filter_entry, .-mail_filter_entry\n");
#else
#define call(n, a, b, c, d) syscall(n, a, b, c, d)
#endif

/* The fields of struct rlimit64, which prlimit64 takes on every machine. */
typedef struct { uint64_t soft, hard; } limit64;

enum { STACK_BYTES = 256 << 10, DATA_BYTES = 512 << 10, SPACE_BYTES = 2 << 20, LINE_BYTES = 160 };

static char *add_text(char *at, const volatile char *text)
{
    while (*text)
        *at++ = *text++;
    return at;
}

static char *add_number(char *at, uint64_t n)
{
    if (n > 9)
        at = add_number(at, n / 10);
    *at++ = (char)('0' + n % 10);
    return at;
}

/* Raises the soft limit to the hard one if it is less than `needed`; ends the process if the hard
 * one is, too. */
static void check(int resource, uint64_t needed, const char *name)
{
    limit64 now;
    if (call(SYS_prlimit64, 0, resource, 0, (long)&now) || now.soft >= needed)
        return;
    limit64 raised = {now.hard, now.hard};
    if (now.hard > now.soft)
        call(SYS_prlimit64, 0, resource, (long)&raised, 0);
    if (!name || now.hard >= needed)
        return;
    char line[LINE_BYTES];
    char *at = add_text(line, "4.3.0 mail-filter: ");
    at = add_text(at, name);
    at = add_text(at, " is limited to ");
    at = add_number(at, now.hard);
    at = add_text(at, " bytes; raise it to ");
    at = add_number(at, needed);
    at = add_text(at, "\n");
    call(SYS_write, 2, (long)line, at - line, 0);
    call(SYS_exit_group, DEFERRED, 0, 0, 0);
}

void limits_check(void)
{
    check(RLIMIT_STACK, STACK_BYTES, "the stack (ulimit -s)");
    check(RLIMIT_DATA, DATA_BYTES, "data (ulimit -d)");
    check(RLIMIT_AS, SPACE_BYTES, "address space (ulimit -v)");
    check(RLIMIT_CPU, UINT64_MAX, NULL); /* SIGXCPU after sendmail would mean a second copy */
}
