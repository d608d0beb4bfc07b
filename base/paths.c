/* base/paths.c - see paths.h. */
#define _GNU_SOURCE /* AT_EACCESS */
#include "base/paths.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *swn_env_lookup(char *const *env, const char *name)
{
    size_t len = strlen(name);
    for (; *env; env++)
        if (strncmp(*env, name, len) == 0 && (*env)[len] == '=')
            return (*env)[len + 1] ? *env + len + 1 : NULL;
    return NULL;
}

/* The owner of the root directory can replace all below it anyway. In a user namespace without a root, root's files
 * belong to the overflow user, and so does the root directory. */
static int is_theirs(uid_t owner)
{
    struct stat root;
    return owner == 0 || owner == geteuid() || (!stat("/", &root) && root.st_uid == owner);
}

/* Whether `dir` is, or would be, this user's: no part of its path belongs to another user but root, and what there is
 * of it from its first `base` bytes on can be written to. A directory that does not exist yet passes. */
static int is_own(const char *dir, size_t base)
{
    char path[4096];
    struct stat entry, st;
    int own = 1;
    if (snprintf(path, sizeof path, "%s", dir) >= (int)sizeof path)
        return 0;
    for (char *p = path + 1;; p++) {
        char end = *p;
        if (end && end != '/')
            continue;
        *p = 0;
        if (lstat(path, &entry) || stat(path, &st))
            return errno == ENOENT && own;
        if (!is_theirs(entry.st_uid) || !is_theirs(st.st_uid))
            return 0;
        if ((size_t)(p - path) >= base)
            own = st.st_uid == geteuid() || !faccessat(AT_FDCWD, path, W_OK, AT_EACCESS);
        if (!end)
            return own;
        *p = end;
    }
}

/* A directory of this user's where all users may have one. */
static int fallback_dir(char *out, size_t size)
{
    struct stat st;
    int n = snprintf(out, size, "/var/tmp/swapnet-%u", (unsigned)geteuid());
    if (n < 0 || (size_t)n >= size)
        return -ENAMETOOLONG;
    return lstat(out, &st) || (S_ISDIR(st.st_mode) && st.st_uid == geteuid()) ? 0 : -EPERM;
}

int swn_default_store_dir(char *const *env, char *out, size_t size)
{
    const char *base = swn_env_lookup(env, "XDG_CACHE_HOME"), *below = "/swapnet";
    if (!base || base[0] != '/') { /* the XDG specification says that relative paths are ignored */
        base = swn_env_lookup(env, "HOME");
        below = "/.cache/swapnet";
    }
    if (!base || base[0] != '/')
        return -ENOENT;
    int n = snprintf(out, size, "%s%s", base, below);
    if (n < 0 || (size_t)n >= size)
        return -ENAMETOOLONG;
    return is_own(out, strlen(base)) ? 0 : fallback_dir(out, size);
}

int swn_store_is_off(const char *value)
{
    return !strcmp(value, "off");
}

int swn_store_dir(char *const *env, char *out, size_t size)
{
    const char *set = swn_env_lookup(env, "SWAPNET_STORE");
    if (!set)
        return swn_default_store_dir(env, out, size);
    if (swn_store_is_off(set))
        return -ENOTSUP;
    return snprintf(out, size, "%s", set) < (int)size ? 0 : -ENAMETOOLONG;
}

int swn_make_dirs(const char *dir)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s", dir) >= (int)sizeof path)
        return -ENAMETOOLONG;
    for (char *p = path + 1; *p; p++) {
        if (*p != '/')
            continue;
        *p = 0;
        if (mkdir(path, 0700) && errno != EEXIST)
            return -errno;
        *p = '/';
    }
    return mkdir(path, 0700) && errno != EEXIST ? -errno : 0;
}

int swn_dir_is_for_reading(const char *dir, int err)
{
    struct stat st;
    if (stat(dir, &st) || !S_ISDIR(st.st_mode))
        return 0;
    return err == -EROFS || ((err == -EACCES || err == -EPERM) && st.st_uid != geteuid());
}

/* A part of the path that is not its end. The caller has checked what is above it, so no other user can
 * replace it meanwhile. */
static int check_above(const char *path)
{
    struct stat entry, st;
    if (lstat(path, &entry) || stat(path, &st))
        return -errno;
    if (!S_ISDIR(st.st_mode))
        return -ENOTDIR;
    return is_theirs(entry.st_uid) && is_theirs(st.st_uid) && (!(st.st_mode & 0002) || st.st_mode & S_ISVTX) ? 0
                                                                                                             : -EPERM;
}

int swn_dir_is_trusted(const char *dir)
{
    char path[4096], whole[4096];
    struct stat st;
    if (dir[0] != '/' && !getcwd(whole, sizeof whole))
        return -errno;
    if (snprintf(path, sizeof path, "%s%s%s", dir[0] == '/' ? "" : whole, dir[0] == '/' ? "" : "/", dir) >=
        (int)sizeof path)
        return -ENAMETOOLONG;
    for (size_t len = strlen(path); len > 1 && path[len - 1] == '/';)
        path[--len] = 0;
    int rc = check_above("/");
    for (char *p = path + 1; !rc && (p = strchr(p, '/')); p++) {
        *p = 0;
        rc = check_above(path);
        *p = '/';
    }
    if (rc)
        return rc;
    if (lstat(path, &st))
        return -errno;
    if (!S_ISDIR(st.st_mode))
        return S_ISLNK(st.st_mode) ? -ELOOP : -ENOTDIR;
    return is_theirs(st.st_uid) && !(st.st_mode & 0022) ? 0 : -EPERM;
}

int swn_make_trusted_dirs(const char *dir)
{
    char path[4096];
    int rc = dir[0] == '/' ? check_above("/") : -EINVAL;
    if (snprintf(path, sizeof path, "%s", dir) >= (int)sizeof path)
        return -ENAMETOOLONG;
    for (char *p = path + 1; !rc && *p; p++) {
        char end = p[1];
        if (end && end != '/')
            continue;
        p[1] = 0;
        rc = check_above(path);
        if (rc == -ENOENT) /* all above it has been looked at */
            rc = mkdir(path, 0700) && errno != EEXIST ? -errno : check_above(path);
        p[1] = end;
    }
    return rc ? rc : swn_dir_is_trusted(dir);
}

/* SWAPNET_LIBDIR, as seen from the prefix, is from CMakeLists.txt. */
int swn_installed(const char *below, char *out, size_t size)
{
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n < 0)
        return -errno;
    self[n] = 0;
    for (int up = 0; up < 2; up++) { /* bin/program -> . */
        char *slash = strrchr(self, '/');
        if (!slash)
            return -ENOENT;
        *slash = 0;
    }
    int length = snprintf(out, size, "%s/" SWAPNET_LIBDIR "%s%s", self, *below ? "/" : "", below);
    return length < 0 || (size_t)length >= size ? -ENAMETOOLONG : 0;
}

int swn_dir_of(const char *path, char *out, size_t size)
{
    const char *slash = strrchr(path, '/');
    int n = slash == path ? snprintf(out, size, "/")
            : slash       ? snprintf(out, size, "%.*s", (int)(slash - path), path)
                          : snprintf(out, size, ".");
    return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}
