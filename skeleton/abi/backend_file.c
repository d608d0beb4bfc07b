/* backend_file.c - finds the backend of a PyTorch: see backend_file.h. */
#define _GNU_SOURCE
#include "skeleton/abi/backend_file.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/paths.h"

#if defined(__x86_64__)
#define MACHINE "x86_64"
#elif defined(__aarch64__)
#define MACHINE "aarch64"
#else
#define MACHINE "other"
#endif
/* SWAPNET_BACKEND_BUILD is from cmake/backend_build.cmake. */
#define OF_THIS_BUILD MACHINE "/" SWAPNET_BACKEND_BUILD

int swn_backend_has_old_strings(void *library)
{
    /* c10::Error's constructor, with a std::string of before C++11. */
    return dlsym(library, "_ZN3c105ErrorC2ENS_14SourceLocationESs") != NULL;
}

static int fits(int length, size_t size)
{
    return length >= 0 && (size_t)length < size ? 0 : -ENAMETOOLONG;
}

int swn_backend_name(const char *kind, const char *version, int has_old_strings, char *out, size_t size)
{
    return fits(snprintf(out, size, "%s-%s%s.so", kind, version, has_old_strings ? "-precxx11" : ""), size);
}

int swn_backend_user_dir(char *const *env, char *out, size_t size)
{
    const char *base = swn_env_lookup(env, "XDG_DATA_HOME"), *below = "/swapnet/backends/" OF_THIS_BUILD;
    if (!base || base[0] != '/') { /* the XDG specification says that relative paths are ignored */
        base = swn_env_lookup(env, "HOME");
        below = "/.local/share/swapnet/backends/" OF_THIS_BUILD;
    }
    return base && base[0] == '/' ? fits(snprintf(out, size, "%s%s", base, below), size) : -ENOENT;
}

/* Only this user writes to it; group and others may not. */
static int is_private(const struct stat *st)
{
    return st->st_uid == geteuid() && !(st->st_mode & 0022);
}

int swn_backend_dir_is_private(const char *dir)
{
    struct stat st;
    /* The environment of a setuid program is its caller's. */
    if (getauxval(AT_SECURE) || getuid() != geteuid() || getgid() != getegid())
        return -EPERM;
    int rc = swn_dir_is_trusted(dir);
    if (rc)
        return rc;
    if (lstat(dir, &st))
        return -errno;
    return is_private(&st) ? 0 : -EPERM;
}

/* In the user's directory. */
static int find_own(const char *dir, const char *name, char *path, size_t size)
{
    struct stat st;
    int rc = fits(snprintf(path, size, "%s/%s", dir, name), size);
    if (rc)
        return rc;
    if (lstat(path, &st))
        return -errno;
    if ((rc = swn_backend_dir_is_private(dir)))
        return rc;
    return S_ISLNK(st.st_mode) ? -ELOOP : S_ISREG(st.st_mode) && is_private(&st) ? 0 : -EPERM;
}

int swn_backend_find(const char *shipped, char *const *env, const char *name, char *path, size_t path_size, char *why,
                     size_t why_size)
{
    char dir[PATH_MAX];
    int rc = fits(snprintf(path, path_size, "%s/%s", shipped, name), path_size);
    if (!rc && access(path, R_OK) == 0)
        return 0;
    rc = swn_backend_user_dir(env, dir, sizeof dir);
    if (!rc)
        rc = find_own(dir, name, path, path_size);
    if (rc == -ENOTDIR || rc == -EACCES)
        rc = -ENOENT;
    if (rc == -EPERM || rc == -ELOOP)
        snprintf(why, why_size, "does not use %s: others than its user can change it", path);
    else if (rc)
        snprintf(why, why_size, "not built for this PyTorch (no %s in %s); `swapnetctl add-torch PYTHON` builds it",
                 name, shipped);
    return rc;
}
