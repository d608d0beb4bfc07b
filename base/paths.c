/* base/paths.c - see paths.h. */
#include "base/paths.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

const char *swn_env_lookup(char *const *env, const char *name)
{
    size_t len = strlen(name);
    for (; *env; env++)
        if (strncmp(*env, name, len) == 0 && (*env)[len] == '=')
            return (*env)[len + 1] ? *env + len + 1 : NULL;
    return NULL;
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
    return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
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

int swn_dir_of(const char *path, char *out, size_t size)
{
    const char *slash = strrchr(path, '/');
    int n = slash == path ? snprintf(out, size, "/")
            : slash       ? snprintf(out, size, "%.*s", (int)(slash - path), path)
                          : snprintf(out, size, ".");
    return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}
