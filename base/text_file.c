/* base/text_file.c - see text_file.h. */
#define _GNU_SOURCE
#include "base/text_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
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

static int write_and_close(int fd, const void *bytes, size_t len)
{
    int rc = write_all(fd, bytes, len);
    if (close(fd) != 0 && rc == 0)
        rc = -errno;
    return rc;
}

/* Links of the system's to what the program has open; each process has its own. */
static int is_standard(const char *path)
{
    static const char *const names[] = {"/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/self/fd/"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (!strncmp(path, names[i], strlen(names[i])))
            return 1;
    return 0;
}

int swn_textfile_open(const char *path)
{
    int standard = is_standard(path);
    int how = standard ? O_APPEND : O_CREAT | O_NOFOLLOW;
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | how, 0600);
    struct stat st;
    if (fd < 0)
        return -errno;
    int rc = fstat(fd, &st) ? -errno : 0;
    if (!rc && S_ISREG(st.st_mode) && !standard) {
        if (flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
            rc = -EBUSY;
        else if (ftruncate(fd, 0))
            rc = -errno;
    }
    if (rc)
        close(fd);
    return rc ? rc : fd;
}

static int replace(const char *path, mode_t mode, const void *bytes, size_t len)
{
    char temporary[PATH_MAX];
    struct stat st;
    if (lstat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return -EEXIST; /* rename would put a file in its place */
    int n = snprintf(temporary, sizeof(temporary), "%s.%ld.tmp", path, (long)getpid());
    if (n < 0 || (size_t)n >= sizeof(temporary))
        return -ENAMETOOLONG;
    (void)unlink(temporary); /* left by a killed process that had our number */
    int fd = open(temporary, O_WRONLY | O_CLOEXEC | O_CREAT | O_EXCL | O_NOFOLLOW, mode);
    int rc = fd < 0 ? -errno : write_and_close(fd, bytes, len);
    if (rc == 0 && rename(temporary, path) != 0)
        rc = -errno;
    if (rc != 0 && rc != -EEXIST)
        (void)unlink(temporary);
    return rc;
}

int swn_textfile_replace(const char *path, const void *bytes, size_t len)
{
    return replace(path, 0644, bytes, len);
}

int swn_textfile_write(const char *path, const char *text)
{
    struct stat st;
    char *line = NULL;
    int len = asprintf(&line, "%s\n", text), rc;
    if (len < 0)
        return -ENOMEM;
    /* rename would put a file in the place of a device or of a link such as /dev/stdout */
    if (lstat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        int fd = swn_textfile_open(path);
        rc = fd < 0 ? fd : write_and_close(fd, line, (size_t)len);
    } else {
        rc = replace(path, 0600, line, (size_t)len);
    }
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
