/* scheduler/protocol/lease_record.c - see scheduler/protocol/lease_record.h. */
#define _GNU_SOURCE
#include "scheduler/protocol/lease_record.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "scheduler/protocol/control_io.h"
#include "base/process.h"

#define SOCKET_ENDS ".sock"
/* A record has some 300 bytes for each process, and root may start any number of processes. */
#define FILE_MOST (64 << 20)

static int beside(const char *socket, const char *ending, char *out, size_t size)
{
    size_t len = strlen(socket), end = strlen(SOCKET_ENDS);
    if (len > end && !strcmp(socket + len - end, SOCKET_ENDS))
        len -= end;
    return snprintf(out, size, "%.*s%s", (int)len, socket, ending) < (int)size ? 0 : -ENAMETOOLONG;
}

int swn_lease_path(const char *socket, char *out, size_t size)
{
    return beside(socket, ".leases", out, size);
}

int swn_lease_stopped_path(const char *socket, char *out, size_t size)
{
    return beside(socket, ".stopped", out, size);
}

static int was_stopped(const char *socket)
{
    char path[PATH_MAX];
    struct stat st;
    return !swn_lease_stopped_path(socket, path, sizeof path) && !lstat(path, &st);
}

/* One that does not say is of a version before this one. */
static int is_of_this_boot(const json_t *root)
{
    char boot[SWN_BOOT_ID];
    const char *said = json_string_value(json_object_get(root, "boot_id"));
    swn_boot_id(boot);
    return !said || !*said || !boot[0] || !strcmp(said, boot);
}

int swn_lease_open(const char *path, json_t **out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -errno;
    struct stat st;
    int err = fstat(fd, &st) ? -errno : 0;
    if (!err && (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_size > FILE_MOST))
        err = -EINVAL;
    json_t *root = err ? NULL : json_loadfd(fd, JSON_REJECT_DUPLICATES, NULL);
    close(fd);
    if (!err &&
        (json_integer_value(json_object_get(root, "schema")) != 1 || !json_is_array(json_object_get(root, "leases"))))
        err = -EINVAL;
    if (!err && !is_of_this_boot(root))
        err = -ENOENT; /* all of its processes are gone, and their numbers may be others' */
    if (err)
        json_decref(root);
    else
        *out = root;
    return err;
}

int swn_lease_has_daemon(const char *path)
{
    struct sockaddr_un sa;
    int err = swn_control_address(&sa, path);
    int fd = err ? -1 : socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return 0;
    err = connect(fd, (const struct sockaddr *)&sa, sizeof sa) ? errno : 0;
    close(fd);
    if (err == EACCES && !was_stopped(path))
        return -EACCES;
    return !err || err == EAGAIN || (err == ECONNREFUSED && !was_stopped(path) && swn_lease_held(path, 0));
}

int swn_lease_held(const char *socket, pid_t but)
{
    char path[PATH_MAX];
    json_t *root, *entry;
    int err = swn_lease_path(socket, path, sizeof path), held = 0;
    if (!err)
        err = swn_lease_open(path, &root);
    if (err)
        return err == -EACCES;
    size_t i;
    json_array_foreach(json_object_get(root, "leases"), i, entry)
    {
        json_int_t pid = json_integer_value(json_object_get(entry, "pid"));
        json_int_t start = json_integer_value(json_object_get(entry, "start"));
        if (!held && pid > 0 && pid <= INT_MAX && pid != but &&
            json_integer_value(json_object_get(entry, "lease_bytes")) > 0)
            held = swn_process_lives((pid_t)pid, (uint64_t)start) != 0;
    }
    json_decref(root);
    return held;
}
