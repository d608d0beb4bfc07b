/* scheduler/http/tls_files.c - a certificate and its key from files: see tls_files.h. What they say is checked by the
 * library that uses them. */
#define _GNU_SOURCE
#include "scheduler/http/tls_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MOST (256 * 1024) /* a chain of certificates has a few thousand bytes each */

static int check(const char *path, const struct stat *st, int is_key, char why[SWN_ERRMSG])
{
    mode_t forbidden = !is_key ? S_IWGRP | S_IWOTH : st->st_uid == 0 ? S_IWGRP | S_IXGRP | S_IRWXO : S_IRWXG | S_IRWXO;

    if (!S_ISREG(st->st_mode))
        return swn_errmsg(why, -EINVAL, "%s is no file", path);
    if (st->st_size > FILE_MOST)
        return swn_errmsg(why, -EFBIG, "%s is too large for %s", path, is_key ? "a key" : "certificates");
    if (st->st_uid != geteuid() && st->st_uid != 0)
        return swn_errmsg(why, -EPERM, "%s belongs to another user", path);
    if (st->st_mode & forbidden)
        return swn_errmsg(why, -EPERM,
                          is_key ? "others can read or write %s: it must have mode 0600, or 0640 if it belongs to root"
                                 : "others can write to %s",
                          path);
    return 0;
}

static int read_text(int fd, size_t room, char **out)
{
    char *text = malloc(room + 1);
    size_t used = 0;
    ssize_t n = 1;

    if (!text)
        return -ENOMEM;
    while (n > 0 && used < room) {
        n = TEMP_FAILURE_RETRY(read(fd, text + used, room - used));
        used += n > 0 ? (size_t)n : 0;
    }
    if (n < 0) {
        int err = -errno;
        explicit_bzero(text, used);
        free(text);
        return err;
    }
    text[used] = '\0';
    *out = text;
    return 0;
}

static int read_file(const char *path, int is_key, char **out, char why[SWN_ERRMSG])
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), rc;

    if (fd < 0)
        return swn_errmsg(why, -errno, "cannot open %s: %s", path, strerror(errno));
    rc = fstat(fd, &st) ? swn_errmsg(why, -errno, "cannot read %s: %s", path, strerror(errno))
                        : check(path, &st, is_key, why);
    if (rc == 0) {
        rc = read_text(fd, (size_t)st.st_size, out);
        if (rc)
            swn_errmsg(why, rc, "cannot read %s: %s", path, strerror(-rc));
    }
    close(fd);
    return rc;
}

int swn_tls_files_read(struct swn_tls_files *files, const char *certificate_path, const char *key_path,
                       char why[SWN_ERRMSG])
{
    int rc;

    *files = (struct swn_tls_files){.certificate_path = certificate_path, .key_path = key_path};
    rc = read_file(certificate_path, 0, &files->certificate, why);
    rc = rc ? rc : read_file(key_path, 1, &files->key, why);
    if (rc)
        swn_tls_files_forget(files);
    return rc;
}

static void forget(char **text)
{
    if (*text)
        explicit_bzero(*text, strlen(*text));
    free(*text);
    *text = NULL;
}

void swn_tls_files_forget(struct swn_tls_files *files)
{
    forget(&files->certificate);
    forget(&files->key);
}
