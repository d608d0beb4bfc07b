/* base/text_file.c - see text_file.h. */
#define _GNU_SOURCE
#include "base/text_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int write_all(int fd, const char *text, size_t len)
{
    while (len) {
        ssize_t n = write(fd, text, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        text += n;
        len -= (size_t)n;
    }
    return 0;
}

/* Creates or opens `path` with `flags`, writes, closes. */
static int write_file(const char *path, int flags, const void *bytes, size_t len)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY | flags, 0644);
    if (fd < 0)
        return -errno;
    int rc = write_all(fd, bytes, len);
    if (close(fd) != 0 && rc == 0)
        rc = -errno;
    return rc;
}

int swn_textfile_replace(const char *path, const void *bytes, size_t len)
{
    char temporary[PATH_MAX];
    int n = snprintf(temporary, sizeof(temporary), "%s.%ld.tmp", path, (long)getpid());
    if (n < 0 || (size_t)n >= sizeof(temporary))
        return -ENAMETOOLONG;
    (void)unlink(temporary); /* left by a killed process with the same pid */
    int rc = write_file(temporary, O_CREAT | O_EXCL | O_NOFOLLOW, bytes, len);
    if (rc == 0 && rename(temporary, path) != 0)
        rc = -errno;
    if (rc != 0 && rc != -EEXIST)
        (void)unlink(temporary);
    return rc;
}

int swn_textfile_write(const char *path, const char *text)
{
    struct stat st;
    char *line = NULL;
    int len = asprintf(&line, "%s\n", text), rc;
    if (len < 0)
        return -ENOMEM;
    /* rename would replace a device or a link such as /dev/stdout. A fifo without a reader must not block the end of
     * the program, hence O_NONBLOCK. */
    if (lstat(path, &st) == 0 && !S_ISREG(st.st_mode))
        rc = write_file(path, O_CREAT | O_TRUNC | O_NONBLOCK, line, (size_t)len);
    else
        rc = swn_textfile_replace(path, line, (size_t)len);
    free(line);
    return rc;
}

static int read_all(int fd, size_t most, char **text, size_t *len)
{
    size_t room = 0;
    char *buf = NULL;
    *len = 0;
    for (;;) {
        if (*len == room) {
            room = room ? room * 2 : 65536;
            char *grown = realloc(buf, room + 1);
            if (!grown)
                break;
            buf = grown;
        }
        ssize_t n = read(fd, buf + *len, room - *len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            break;
        if (n == 0) {
            buf[*len] = 0;
            *text = buf;
            return 0;
        }
        *len += (size_t)n;
        if (*len > most) {
            errno = EFBIG;
            break;
        }
    }
    int rc = -errno;
    free(buf);
    return rc ? rc : -ENOMEM;
}

int swn_textfile_read(const char *path, size_t most, char **text, size_t *len)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return -errno;
    int rc = read_all(fd, most, text, len);
    close(fd);
    return rc;
}
