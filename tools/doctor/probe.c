/* tools/doctor/probe.c - asks the kernel, the disk and the limits what the library will ask them, by the library's own
 * functions. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <liburing.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "tools/doctor/facts.h"

#include "base/backing.h"
#include "base/huge_pages.h"
#include "base/page.h"
#include "base/paths.h"
#include "base/process.h"
#include "base/text_file.h"
#include "blocks/memory/pagemap.h"
#include "blocks/memory/pagemap_proof.h"
#include "blocks/memory/spill_file.h"
#include "blocks/store/cache.h"
#include "scheduler/protocol/elf_file.h"
#include "scheduler/protocol/preload.h"

/* The first line of a small file of the kernel's; "" where it is not there. */
static void read_line(char *out, size_t size, const char *root, const char *name)
{
    char path[PATH_MAX];
    out[0] = 0;
    if (snprintf(path, sizeof path, "%s%s", root, name) >= (int)sizeof path)
        return;
    FILE *f = fopen(path, "re");
    if (f && !fgets(out, (int)size, f))
        out[0] = 0;
    if (f)
        fclose(f);
    out[strcspn(out, "\n")] = 0;
}

static int read_number(const char *root, const char *name)
{
    char line[64], *end;
    read_line(line, sizeof line, root, name);
    long number = strtol(line, &end, 10);
    return end == line || number < 0 || number > INT_MAX ? -1 : (int)number;
}

/* ---- kernel ---- */

static int make_huge(void)
{
    int fd = memfd_create("swapnet-doctor", MFD_CLOEXEC), rc = 0;
    if (fd < 0 || ftruncate(fd, SWN_HUGE))
        rc = -errno;
    void *at = rc ? MAP_FAILED : swn_huge_map(fd, 0, SWN_HUGE, PROT_READ | PROT_WRITE);
    if (!rc && at == MAP_FAILED)
        rc = -errno;
    if (!rc) {
        rc = swn_huge_collapse(at, SWN_HUGE);
        munmap(at, SWN_HUGE);
    }
    if (fd >= 0)
        close(fd);
    return rc;
}

void doctor_look_at_kernel(struct doctor_kernel *k, const char *root)
{
    struct utsname name;
    snprintf(k->release, sizeof k->release, "%s", uname(&name) ? "?" : name.release);
    k->page_bytes = sysconf(_SC_PAGESIZE);
    int fd = swn_pagemap_open();
    k->pagemap = fd < 0 ? fd : swn_pagemap_proof_of(&fd);
    k->knows_huge = fd >= 0 && swn_pagemap_knows_huge(&fd);
    swn_pagemap_close(fd);
    k->huge = make_huge();
    k->huge_disabled = prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) > 0;
    read_line(k->huge_mode, sizeof k->huge_mode, root, "/sys/kernel/mm/transparent_hugepage/enabled");
    fd = swn_pressure_open(root);
    k->pressure = fd < 0 ? fd : 0;
    if (fd >= 0)
        close(fd);
    k->process_descriptor = swn_process_watch(getpid());
    if (k->process_descriptor >= 0) {
        close(k->process_descriptor);
        k->process_descriptor = 0;
    }
}

/* ---- store ---- */

struct wait {
    pthread_mutex_t lock;
    pthread_cond_t over;
    int is_over, err;
};

static void over(struct swn_fetch_job *job, int err)
{
    struct wait *w = job->user;
    pthread_mutex_lock(&w->lock);
    w->is_over = 1;
    w->err = err;
    pthread_cond_signal(&w->over);
    pthread_mutex_unlock(&w->lock);
}

/* Reads a page of the file as the library reads weights. */
static int read_page(struct doctor_store *s, const struct swn_io *io, struct swn_extent_file *file, uint64_t off,
                     void *page)
{
    struct wait w = {.lock = PTHREAD_MUTEX_INITIALIZER, .over = PTHREAD_COND_INITIALIZER};
    struct swn_fetch_job job = {
        .file = &file->fetch, .off = off, .buf = page, .len = SWN_PAGE, .done = over, .user = &w};
    struct swn_fetch_opts opts = {.io = io, .best_path = SWN_FETCH_URING};
    struct swn_fetch *fetch;
    int rc = swn_fetch_start(&fetch, &opts);
    if (rc)
        return rc;
    rc = swn_fetch_submit(fetch, &job, 1);
    pthread_mutex_lock(&w.lock);
    while (!rc && !w.is_over)
        pthread_cond_wait(&w.over, &w.lock);
    pthread_mutex_unlock(&w.lock);
    s->path = swn_fetch_path_now(fetch);
    swn_fetch_stop(fetch);
    return rc ? rc : w.err;
}

/* Writes a page into a spill file in `dir`, and reads it. */
static void try_spill(struct doctor_store *s, const struct swn_io *io, const char *dir)
{
    struct swn_extent_file *file;
    unsigned char *page = aligned_alloc(SWN_PAGE, SWN_PAGE);
    s->error = page ? swn_spill_open(&file, io, dir) : -ENOMEM;
    if (!s->error) {
        memset(page, 0xa5, SWN_PAGE);
        uint64_t off = swn_spill_place(file, SWN_PAGE);
        s->error = swn_spill_write(file, page, SWN_PAGE, off);
        s->direct = file->fetch.direct_fd >= 0;
        memset(page, 0, SWN_PAGE);
        if (!s->error)
            s->read = read_page(s, io, file, off, page);
        for (size_t i = 0; !s->error && !s->read && i < SWN_PAGE; i++)
            if (page[i] != 0xa5)
                s->read = -EIO;
        swn_spill_close(file);
    }
    free(page);
}

/* As the library does it: what leaves memory goes elsewhere where the store can only be read. */
static void try_store(struct doctor_store *s, const struct swn_io *io, char *const *env)
{
    char why[SWN_ERRMSG];
    try_spill(s, io, s->dir);
    int error = s->error;
    if (swn_dir_is_for_reading(s->dir, error) && !swn_default_store_dir(env, s->spill, sizeof s->spill))
        try_spill(s, io, s->spill);
    if (s->error) {
        s->error = error;
        s->spill[0] = 0;
    }
    if (!s->error && !s->off && swn_cache_check_dir(io, s->dir, why) == -EPERM)
        swn_errmsg(s->distrusted, 0, "%s", why);
}

/* The directory that there is none of, in words. */
static void name_missing(struct doctor_store *s)
{
    if (s->error == -ENOENT)
        snprintf(s->dir, sizeof s->dir, "(no HOME)");
    else if (s->error == -EPERM)
        snprintf(s->dir, sizeof s->dir, "/var/tmp/swapnet-%u", (unsigned)geteuid());
    else
        snprintf(s->dir, sizeof s->dir, "of SWAPNET_STORE");
}

void doctor_look_at_store(struct doctor_store *s, const struct swn_io *io, const char *root, char *const *env)
{
    struct io_uring ring;
    struct statvfs disk;
    s->ring_disabled = read_number(root, "/proc/sys/kernel/io_uring_disabled");
    s->ring = io->ring_setup(io->ctx, &ring, SWN_FETCH_DEPTH);
    if (!s->ring)
        io->ring_exit(io->ctx, &ring);
    s->error = swn_store_dir(env, s->dir, sizeof s->dir);
    s->off = s->error == -ENOTSUP;
    if (s->off)
        s->error = swn_default_store_dir(env, s->dir, sizeof s->dir);
    if (s->error) {
        name_missing(s);
        return;
    }
    try_store(s, io, env);
    const char *spill = s->spill[0] ? s->spill : s->dir;
    s->in_memory = !s->error && swn_is_memory_backed(io, spill);
    if (!statvfs(spill, &disk))
        s->free_bytes = (uint64_t)disk.f_bavail * disk.f_frsize;
}

/* ---- memory ---- */

static uint64_t limit_of(__rlimit_resource_t what)
{
    struct rlimit limit;
    return getrlimit(what, &limit) || limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur;
}

static uint64_t field(const char *text, const char *key)
{
    unsigned long long kib;
    const char *line = strstr(text, key);
    return line && sscanf(line + strlen(key), " %llu kB", &kib) == 1 ? kib << 10 : 0;
}

void doctor_look_at_memory(struct doctor_memory *m, const char *root)
{
    char path[PATH_MAX], *text;
    size_t length;
    m->error = swn_memory_read(&m->now, root);
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    if (!swn_textfile_read(path, 1 << 16, &text, &length)) {
        m->total = field(text, "MemTotal:");
        m->swap_total = field(text, "SwapTotal:");
        free(text);
    }
    m->overcommit = read_number(root, "/proc/sys/vm/overcommit_memory");
    m->space = limit_of(RLIMIT_AS);
    m->data = limit_of(RLIMIT_DATA);
    m->file = limit_of(RLIMIT_FSIZE);
    m->open = limit_of(RLIMIT_NOFILE);
}

/* ---- library ---- */

static void add_word(char *list, size_t size, const char *word)
{
    size_t at = strlen(list);
    snprintf(list + at, size - at, "%s%s", at ? " " : "", word);
}

/* One of the libraries that the loader is to preload: a path, or a name that it looks for in its own directories. */
static void look_at_preload(struct doctor_library *l, const char *word)
{
    char real[PATH_MAX];
    struct swn_elf elf;
    const char *base = strrchr(word, '/');
    int named = base != NULL;
    if (named && realpath(word, real) && !strcmp(real, l->path))
        return;
    if (!strcmp(named ? base + 1 : word, "libswapnet.so")) {
        if (!l->other[0])
            snprintf(l->other, sizeof l->other, "%s", word);
    } else if (named && swn_elf_read(word, &elf)) {
        add_word(l->unreadable, sizeof l->unreadable, word);
    } else {
        add_word(l->preloaded, sizeof l->preloaded, word);
    }
}

static void look_at_preloads(struct doctor_library *l, const char *list)
{
    char *copy = strdup(list), *rest = copy, *word;
    while (copy && (word = strtok_r(rest, " :\t\n", &rest)))
        look_at_preload(l, word);
    free(copy);
}

static int compare_versions(const struct dirent **a, const struct dirent **b)
{
    return strverscmp((*a)->d_name, (*b)->d_name);
}

static int is_backend(const struct dirent *entry)
{
    const char *end = strrchr(entry->d_name, '.');
    return !strncmp(entry->d_name, "aten-", 5) && end && !strcmp(end, ".so");
}

/* The torch backends beside the library. */
static void list_backends(struct doctor_library *l)
{
    char dir[PATH_MAX + 16], version[NAME_MAX + 1];
    struct dirent **list;
    snprintf(dir, sizeof dir, "%.*s/swapnet", (int)(strrchr(l->path, '/') - l->path), l->path);
    int count = scandir(dir, &list, is_backend, compare_versions);
    for (int i = 0; i < count; i++) {
        snprintf(version, sizeof version, "%.*s", (int)strlen(list[i]->d_name) - 8, list[i]->d_name + 5);
        add_word(l->backends, sizeof l->backends, version);
        free(list[i]);
    }
    if (count >= 0)
        free(list);
}

void doctor_look_at_library(struct doctor_library *l, const char *root, const char *wanted, const char *preload)
{
    char path[PATH_MAX], *text;
    size_t length;
    l->error = swn_preload_find(wanted, l->path, l->why);
    if (l->error)
        return;
    list_backends(l);
    look_at_preloads(l, preload ? preload : "");
    snprintf(path, sizeof path, "%s/etc/ld.so.preload", root);
    if (!swn_textfile_read(path, 1 << 16, &text, &length)) {
        /* The loader takes what is behind a # for a comment, in this file only. */
        for (char *comment = text; (comment = strchr(comment, '#'));)
            memset(comment, ' ', strcspn(comment, "\n"));
        look_at_preloads(l, text);
        free(text);
    }
}
