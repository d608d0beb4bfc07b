/* scheduler/daemon/lease_file.c - see scheduler/daemon/lease_file.h. */
#define _GNU_SOURCE
#include "scheduler/daemon/lease_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "scheduler/protocol/lease_record.h"
#include "base/process.h"

static json_t *as_json(const struct swn_book *b, const struct swn_lease_total *total)
{
    char boot[SWN_BOOT_ID];
    json_t *leases = json_array();
    swn_boot_id(boot);
    for (const struct swn_client_lease *p = b->first; p; p = p->next)
        json_array_append_new(leases,
                              json_pack("{s:I s:I s:I s:s s:I s:I s:f s:b}", "pid", (json_int_t)p->pid, "start",
                                        (json_int_t)p->start, "uid", (json_int_t)p->uid, "name", p->name, "lease_bytes",
                                        (json_int_t)p->ceiling, "set_budget_bytes", (json_int_t)p->set.budget,
                                        "set_urgency", p->set.urgency, "has_library", p->has_library));
    return json_pack("{s:i s:s s:b s:I s:I s:f s:o}", "schema", 1, "boot_id", boot, "draining", b->draining,
                     "set_total_bytes", (json_int_t)total->set, "start_total_bytes", (json_int_t)total->start_bytes,
                     "start_share", total->start_share, "leases", leases);
}

static int write_all(int fd, const char *text, size_t len)
{
    while (len) {
        ssize_t n = write(fd, text, len);
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n > 0) {
            text += n;
            len -= (size_t)n;
        }
    }
    return 0;
}

int swn_lease_save(const struct swn_book *b, const struct swn_lease_total *total, const char *path)
{
    char beside[PATH_MAX];
    if (snprintf(beside, sizeof beside, "%s.new", path) >= (int)sizeof beside)
        return -ENAMETOOLONG;
    json_t *root = as_json(b, total);
    char *text = root ? json_dumps(root, JSON_INDENT(1)) : NULL;
    json_decref(root);
    if (!text)
        return -ENOMEM;
    /* No fsync: the record has to outlive this daemon, not the machine. */
    int fd = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    int err = fd < 0 ? -errno : write_all(fd, text, strlen(text));
    if (fd >= 0 && close(fd) && !err)
        err = -errno;
    if (!err && rename(beside, path))
        err = -errno;
    free(text);
    return err;
}

static int take(struct swn_book *b, const json_t *entry)
{
    json_int_t pid, start, uid, bytes, set_budget;
    const char *name;
    double urgency;
    int has_library = 0;
    if (json_unpack((json_t *)(uintptr_t)entry, "{s:I s:I s:I s:s s:I s:I s:F s?b}", "pid", &pid, "start", &start,
                    "uid", &uid, "name", &name, "lease_bytes", &bytes, "set_budget_bytes", &set_budget, "set_urgency",
                    &urgency, "has_library", &has_library) ||
        pid <= 0 || pid > INT_MAX || start < 0 || bytes < 0 || (uint64_t)bytes > SWN_WIRE_BYTES_MOST ||
        set_budget < 0 || (uint64_t)set_budget > SWN_WIRE_BYTES_MOST ||
        !(urgency >= 0 && urgency <= SWN_WIRE_URGENCY_MOST))
        return -EINVAL;
    if (!swn_process_lives((pid_t)pid, (uint64_t)start) || swn_book_find(b, (pid_t)pid, (uint64_t)start))
        return 0; /* dead: its memory is free */
    if (has_library && !swn_process_has_thread((pid_t)pid, SWN_CLIENT_THREAD))
        return 0; /* another program by now */
    struct swn_client_lease *p = swn_book_join(b, (pid_t)pid, (uint64_t)start, (uint64_t)bytes);
    if (!p)
        return -ENOMEM;
    /* Until the process reports, its whole ceiling counts as resident: otherwise a total that follows memory would
     * fall, and all leases with it. */
    p->resident = p->ceiling;
    if (swn_process_own_memory(p->pid, &p->in_memory))
        p->in_memory = 0;
    p->uid = (uid_t)uid;
    snprintf(p->name, sizeof p->name, "%s", name);
    p->set.budget = (uint64_t)set_budget;
    p->set.urgency = urgency;
    p->has_library = has_library;
    return 0;
}

/* Older records lack these fields. */
static int take_total(struct swn_book *b, struct swn_lease_total *total, const json_t *root)
{
    json_int_t set = 0, start_bytes = 0;
    double start_share = 0;
    int draining = 0;
    if (json_unpack((json_t *)(uintptr_t)root, "{s?b s?I s?I s?F}", "draining", &draining, "set_total_bytes", &set,
                    "start_total_bytes", &start_bytes, "start_share", &start_share) ||
        set < 0 || (uint64_t)set > SWN_WIRE_BYTES_MOST || start_bytes < 0)
        return -EINVAL;
    double other = start_share - total->start_share;
    if ((uint64_t)start_bytes == total->start_bytes && (start_bytes || (other < 1e-9 && other > -1e-9)))
        total->set = (uint64_t)set;
    b->draining = draining && b->count; /* without processes the drain is complete */
    return 0;
}

int swn_lease_load(struct swn_book *b, struct swn_lease_total *total, const char *path)
{
    json_t *root, *entry;
    int err = swn_lease_open(path, &root);
    if (err)
        return err == -ENOENT ? 0 : err;
    size_t i;
    json_array_foreach(json_object_get(root, "leases"), i, entry)
    {
        if (!err)
            err = take(b, entry);
    }
    if (!err)
        err = take_total(b, total, root);
    json_decref(root);
    return err;
}
