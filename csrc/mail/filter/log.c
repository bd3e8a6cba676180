/* log.c - lines for syslog's mail facility, or for a file.
 *
 * The format is that of syslog(3) (RFC 3164: "<22>Nov 22 06:00:00 mail-filter[4711]: ..." as one
 * datagram to /dev/log).
 *
 * Diagnostics: none; a line that cannot be written is dropped.
 * Guards against a log daemon that does not read: syslog(3) would wait, and a message must not wait
 * for its log.  Control characters of foreign text are replaced. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include "mail/filter/filter.h"

enum { MAIL_INFO = 2 << 3 | 6, LINE_BYTES = 1024, BUFFER_BYTES = 4096 };
static int fd = -1, is_socket, is_buffered;
static char
    buffer[BUFFER_BYTES]; /* for stderr: the line with the reason must come first for Postfix */
static size_t n_buffered;

void log_open(const char *file)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX, .sun_path = "/dev/log"};
    is_buffered = file && !strcmp(file, "-");
    is_socket = !file;
    if (is_buffered)
        fd = 2;
    else if (file)
        fd = open(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600);
    else if ((fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) >= 0
             && connect(fd, (struct sockaddr *)&to, sizeof to)) {
        close(fd);
        fd = -1;
    }
}

void log_line(const char *format, ...)
{
    char line[LINE_BYTES];
    size_t n = 0;
    va_list args;
    const time_t now = time(NULL);
    struct tm local;
    if (fd < 0)
        return;
    if (is_socket)
        n = (size_t)snprintf(line, sizeof line, "<%d>", MAIL_INFO);
    if (localtime_r(&now, &local))
        n += strftime(line + n, sizeof line - n, "%b %e %H:%M:%S ", &local);
    n += (size_t)snprintf(line + n, sizeof line - n, "mail-filter[%d]: ", (int)getpid());
    va_start(args, format);
    const int wanted = vsnprintf(line + n, sizeof line - n - 1, format, args);
    va_end(args);
    if (wanted < 0)
        return;
    n += (size_t)wanted < sizeof line - n - 1 ? (size_t)wanted : sizeof line - n - 2;
    if (is_socket) {
        (void)!send(fd, line, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        return;
    }
    line[n++] = '\n';
    if (!is_buffered) {
        (void)!write(fd, line, n);
    } else if (n <= sizeof buffer - n_buffered) {
        memcpy(buffer + n_buffered, line, n);
        n_buffered += n;
    }
}

void log_close(void)
{
    if (is_buffered)
        (void)!write(2, buffer, n_buffered);
    n_buffered = 0;
}

void log_clean(char *text, size_t text_bytes, const char *from, size_t n_bytes)
{
    size_t n = 0;
    for (size_t i = 0; i < n_bytes && n + 1 < text_bytes; i++)
        text[n++] = from[i] == '\n'                             ? ' '
            : from[i] < ' ' || from[i] == 127 || from[i] & 0x80 ? '?'
                                                                : from[i];
    while (n && text[n - 1] == ' ')
        n--;
    text[n] = 0;
}
