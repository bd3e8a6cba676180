/* milter.c - mail-milter: options, the socket, and the start of libmilter.
 *
 * Diagnostics: the exit statuses of --help, and one line on stderr.
 * Guards against removing another program's file or socket, listening on all addresses, and running
 * as root. */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <grp.h>
#include <malloc.h>
#include <netinet/in.h>
#include <pwd.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <syslog.h>
#include <unistd.h>
#include "mail/milter/events.h"
#include "mail/milter/mail.h"

enum { DONE = 0, USAGE = 64, CANNOT_CREATE = 73, IO_ERROR = 74, TRY_AGAIN = 75 };
enum { MAX_DEADLINE = 240, MAX_HEADER = 16 << 20, BACKLOG = 1024, FILES = 65536 };

static const char help[] =
    "NAME\n"
    "  mail-milter - mark messages while Postfix or Sendmail receives them\n"
    "SYNOPSIS\n"
    "  mail-milter -p LISTEN --socket WORKER [OPTIONS]\n"
    "DESCRIPTION\n"
    "  A milter. At the end of each message it asks a resident worker, `classify\n"
    "  --listen WORKER`, and adds the answer at the top of the headers:\n"
    "  X-Spam-Flag, X-Spam-Score, X-Spam-Status and X-Spam-Checker-Version. X-Spam\n"
    "  headers that came with the message are removed. Nothing else changes.\n"
    "\n"
    "  No message is rejected, deferred or discarded. After any error the message\n"
    "  is accepted with \"X-Spam-Status: unchecked; reason=WORD\". WORD is worker\n"
    "  (none answers), timeout, crashed, size, memory, model, empty, input or\n"
    "  skipped. While mail-milter itself is not running, Postfix does what\n"
    "  milter_default_action says. In main.cf:\n"
    "\n"
    "    smtpd_milters = inet:127.0.0.1:8895\n"
    "    milter_default_action = accept\n"
    "\n"
    "  The program stays in the foreground and logs one line per message to syslog,\n"
    "  facility mail. SIGTERM ends it.\n"
    "OPTIONS\n"
    " Server\n"
    "  -p, --listen LISTEN     Where the mail server connects: unix:/PATH or\n"
    "                          inet:PORT@HOST\n"
    "  --mode OCTAL            Permissions of the socket unix:/PATH [0660]\n"
    "  --user NAME             Become this user once the socket is there. Required\n"
    "                          if started as root.\n"
    " Verdict\n"
    "  --socket WORKER         Path of the Unix socket that the worker listens on\n"
    "  --deadline SECONDS      Time limit of an answer; then the message is marked\n"
    "                          unchecked. At most 240: Postfix waits 300. [60]\n"
    "  --max-size BYTES        Do not classify a larger message [16777216]\n"
    "  --memory BYTES          Limit for all messages that are being received; a\n"
    "                          message that exceeds it is not classified [268435456]\n"
    "  --skip-authenticated    Do not classify messages of senders that logged in\n"
    "  --explain-header        Add X-Spam-Explain: numbers and fixed words that say\n"
    "                          what led to the answer\n"
    "  --monitor               Change no message; log only\n"
    " General\n"
    "  -v, --verbose           Log to stderr, too\n"
    "  -h, --help              Print this text\n"
    "  -V, --version           Print the version\n"
    "EXIT STATUS\n"
    "  0   ended by SIGTERM, or this text or the version was printed\n"
    "  64  usage error\n"
    "  73  cannot listen there\n"
    "  74  the listening socket failed, or output cannot be written\n"
    "  75  another process listens there already, or out of memory; retry\n"
    "EXAMPLES\n"
    "  mail-milter -p inet:8895@127.0.0.1 --socket /run/sluice/classify.sock \\\n"
    "      --user filter\n"
    "SEE ALSO\n"
    "  classify, mail-filter\n";

_Noreturn static void die(int code, const char *format, ...)
{
    va_list arguments;
    fputs("mail-milter: ", stderr);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputs(code == USAGE ? " (see mail-milter --help)\n" : "\n", stderr);
    exit(code);
}

/* A whole number from `min` to `max`. */
static long number(const char *option, const char *text, int base, long min, long max)
{
    char *end;
    errno = 0;
    const long n = strtol(text, &end, base);
    if (*text < '0' || *text > '9' || *end || errno || n < min || n > max)
        die(USAGE,
            base == 8 ? "--%s: '%s' is not a mode from %lo to %lo"
                      : "--%s: '%s' is not a number from %ld to %ld",
            option, text, min, max);
    return n;
}

/* The path in unix:/PATH, NULL: inet:PORT@HOST or inet6:PORT@HOST; anything else is refused. */
static const char *unix_path(const char *listen)
{
    struct sockaddr_un a;
    if (!strncmp(listen, "unix:/", 6)) {
        if (strlen(listen + 5) >= sizeof a.sun_path)
            die(USAGE, "-p: the path of a socket has at most %zu bytes", sizeof a.sun_path - 1);
        return listen + 5;
    }
    if (strncmp(listen, "inet:", 5) && strncmp(listen, "inet6:", 6))
        die(USAGE, "-p: '%s' is neither unix:/PATH nor inet:PORT@HOST", listen);
    if (!strchr(listen, '@'))
        die(USAGE, "-p: '%s' names no host, and would listen on all addresses: inet:PORT@HOST",
            listen);
    return NULL;
}

/* libmilter removes the file at `path`: check that it is a socket without a listener. */
static void check_path(const char *path)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    struct stat st;
    strcpy(to.sun_path, path);
    if (lstat(path, &st))
        return;
    if (!S_ISSOCK(st.st_mode))
        die(CANNOT_CREATE, "%s: exists and is no socket", path);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && !connect(fd, (struct sockaddr *)&to, sizeof to))
        die(TRY_AGAIN, "%s: another process listens there", path);
    close(fd);
}

/* Become the user, and give it the socket at `path` (or NULL); its group stays that of the
 * directory, where that is set so. */
static void become(const struct passwd *p, const char *path)
{
    if (p->pw_uid == geteuid())
        return;
    if (path && chown(path, p->pw_uid, (gid_t)-1))
        die(CANNOT_CREATE, "%s: %s", path, strerror(errno));
    if (initgroups(p->pw_name, p->pw_gid) || setgid(p->pw_gid) || setuid(p->pw_uid))
        die(USAGE, "--user: cannot become '%s': %s", p->pw_name, strerror(errno));
}

/* No message in core files; two descriptors for every client of the mail server. */
static void set_limits(void)
{
    struct rlimit r = {0, 0};
    setrlimit(RLIMIT_CORE, &r);
    if (!getrlimit(RLIMIT_NOFILE, &r) && r.rlim_cur < FILES) {
        r.rlim_cur = r.rlim_max < FILES ? r.rlim_max : FILES;
        setrlimit(RLIMIT_NOFILE, &r);
    }
    /* What threads free goes back to the system, and not to a heap for each of them. */
    mallopt(M_ARENA_MAX, 2);
    mallopt(M_MMAP_THRESHOLD, 64 << 10);
    mallopt(M_TRIM_THRESHOLD, 256 << 10);
    signal(SIGPIPE, SIG_IGN);
}

static void listen_at(const char *spec, const char *path, long mode)
{
    if (path)
        check_path(path);
    char *copy = strdup(spec);
    if (!copy || smfi_setconn(copy) || smfi_setbacklog(BACKLOG) || smfi_register(milter_events))
        die(TRY_AGAIN, "out of memory");
    free(copy); /* libmilter made its own */
    smfi_setmaxdatasize(MAX_HEADER);
    const mode_t before = umask(~(mode_t)mode & 0777);
    errno = 0;
    if (smfi_opensocket(1))
        die(CANNOT_CREATE, "%s: cannot listen there%s%s", spec, errno ? ": " : "",
            errno ? strerror(errno) : "");
    umask(before);
}

int main(int argc, char **argv)
{
    enum { WORKER = 256, DEADLINE, MAX_SIZE, MEMORY, SKIP, EXPLAIN, MONITOR, MODE, USER };
    static const struct option options[] = {{"listen", 1, 0, 'p'},
                                            {"socket", 1, 0, WORKER},
                                            {"deadline", 1, 0, DEADLINE},
                                            {"max-size", 1, 0, MAX_SIZE},
                                            {"memory", 1, 0, MEMORY},
                                            {"skip-authenticated", 0, 0, SKIP},
                                            {"explain-header", 0, 0, EXPLAIN},
                                            {"monitor", 0, 0, MONITOR},
                                            {"mode", 1, 0, MODE},
                                            {"user", 1, 0, USER},
                                            {"verbose", 0, 0, 'v'},
                                            {"version", 0, 0, 'V'},
                                            {"help", 0, 0, 'h'},
                                            {0, 0, 0, 0}};
    const char *listen = NULL, *user = NULL;
    long mode = 0660;
    int option, verbose = 0;
    settings.deadline = 60;
    opterr = 0;
    while ((option = getopt_long(argc, argv, "+:p:vVh", options, NULL)) != -1)
        switch (option) {
        case 'p': listen = optarg; break;
        case WORKER: settings.socket = optarg; break;
        case DEADLINE:
            settings.deadline = (int)number("deadline", optarg, 10, 1, MAX_DEADLINE);
            break;
        case MAX_SIZE:
            mail_limits.one = (size_t)number("max-size", optarg, 10, 1024, 1L << 30);
            break;
        case MEMORY:
            mail_limits.all = (size_t)number("memory", optarg, 10, 1 << 20, 1L << 40);
            break;
        case SKIP: settings.skip_authenticated = 1; break;
        case EXPLAIN: settings.explain = 1; break;
        case MONITOR: settings.monitor = 1; break;
        case MODE: mode = number("mode", optarg, 8, 0, 0777); break;
        case USER: user = optarg; break;
        case 'v': verbose = 1; break;
        case 'V':
            return puts("mail-milter (sluice) " SLUICE_VERSION) < 0 || fflush(stdout) ? IO_ERROR
                                                                                      : DONE;
        case 'h': return fputs(help, stdout) < 0 || fflush(stdout) ? IO_ERROR : DONE;
        case ':': die(USAGE, "%s: needs a value", argv[optind - 1]);
        default: die(USAGE, "%s: no such option", argv[optind - 1]);
        }
    if (optind < argc)
        die(USAGE, "'%s': unexpected argument", argv[optind]);
    if (!listen || !settings.socket)
        die(USAGE, listen ? "--socket WORKER is missing" : "-p LISTEN is missing");
    struct sockaddr_un a;
    if (*settings.socket != '/' || strlen(settings.socket) >= sizeof a.sun_path)
        die(USAGE, "--socket: '%s' is not an absolute path of at most %zu bytes", settings.socket,
            sizeof a.sun_path - 1);
    const char *path = unix_path(listen);
    const struct passwd *whom = user ? getpwnam(user) : NULL;
    if (user && !whom)
        die(USAGE, "--user: there is no user '%s'", user);
    if (!user && geteuid() == 0)
        die(USAGE, "started as root: --user NAME says whom to become");
    set_limits();
    listen_at(listen, path, mode);
    if (whom)
        become(whom, path);
    openlog("mail-milter", LOG_PID | (verbose ? LOG_PERROR : 0), LOG_MAIL);
    return smfi_main() == MI_SUCCESS ? DONE : IO_ERROR;
}
