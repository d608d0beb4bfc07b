/* tools/doctor/judge.c - what the facts of a machine mean for programs under swapnet: what is fast, what is slow, what
 * to change. Pure. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tools/doctor/facts.h"

#include "base/page.h"
#include "base/size.h"

#define MIB ((uint64_t)1 << 20)
/* A disk with less room takes the spilled weights of a small model only. */
#define ROOM_LEAST (1024 * MIB)
/* The engine has about a dozen descriptors, and a program of PyTorch's some more. */
#define OPEN_LEAST 64

const char *doctor_level_name(enum doctor_level level)
{
    static const char *const names[] = {"ok", "note", "slow", "fail"};
    return names[level];
}

__attribute__((format(printf, 5, 6))) static void
say(struct doctor_report *r, const char *check, enum doctor_level level, const char *advice, const char *format, ...)
{
    if (r->count == DOCTOR_FINDINGS)
        return;
    struct doctor_finding *f = &r->findings[r->count++];
    char text[sizeof f->text];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    *f = (struct doctor_finding){.check = check, .level = level};
    swn_errmsg(f->text, 0, "%s", text);
    swn_errmsg(f->advice, 0, "%s", advice ? advice : "");
}

static const char *mib(char buf[32], uint64_t bytes)
{
    return swn_format_mib(buf, bytes);
}

static void judge_library(const struct doctor_library *l, struct doctor_report *r)
{
    if (l->error) {
        say(r, "library", DOCTOR_FAIL, "install swapnet again, or name the library with SWAPNET_LIBRARY", "%s", l->why);
        return;
    }
    say(r, "library", DOCTOR_OK, NULL, "%s, for PyTorch %s", l->path, l->backends[0] ? l->backends : "(none)");
    if (l->other[0])
        say(r, "preloads", DOCTOR_FAIL, "take it out of LD_PRELOAD, or of /etc/ld.so.preload",
            "another swapnet is preloaded: %s", l->other);
    else if (l->unreadable[0])
        say(r, "preloads", DOCTOR_NOTE, "take them out of LD_PRELOAD; /etc/ld.so.preload is for all programs",
            "cannot be preloaded, which the loader says at each start: %s", l->unreadable);
    else if (l->preloaded[0])
        say(r, "preloads", DOCTOR_NOTE, NULL, "behind the library comes %s: its malloc or its files are used as before",
            l->preloaded);
    else
        say(r, "preloads", DOCTOR_OK, NULL, "no other");
}

static void judge_huge_pages(const struct doctor_kernel *k, struct doctor_report *r)
{
    if (!k->huge && k->knows_huge)
        say(r, "huge pages", DOCTOR_OK, NULL, "weights are read into huge pages");
    else if (!k->huge)
        say(r, "huge pages", DOCTOR_OK, NULL,
            "weights are read into huge pages, and mapped in parts: this kernel's page map does not tell a file's");
    else if (k->huge_disabled)
        say(r, "huge pages", DOCTOR_SLOW, "start it without prctl(PR_SET_THP_DISABLE), which a parent has called",
            "forbidden for this process and its children: the disk reads into small pages");
    else if (strstr(k->huge_mode, "[never]"))
        say(r, "huge pages", DOCTOR_SLOW, "write madvise to /sys/kernel/mm/transparent_hugepage/enabled",
            "the administrator forbids them (never): the disk reads into small pages");
    else if (k->huge == -EINVAL)
        say(r, "huge pages", DOCTOR_SLOW, "use Linux 6.1 or later", "this kernel makes none on request: small pages");
    else
        say(r, "huge pages", DOCTOR_SLOW, NULL, "none could be made now (%s): memory is in small pieces, or short",
            strerror(-k->huge));
}

static void judge_kernel(const struct doctor_kernel *k, struct doctor_report *r)
{
    if (k->page_bytes != (long)SWN_PAGE)
        say(r, "kernel", DOCTOR_FAIL, "start a kernel with pages of 4 KiB (a Raspberry Pi 5: kernel=kernel8.img)",
            "Linux %s has pages of %ld bytes; swapnet works where they have %zu", k->release, k->page_bytes, SWN_PAGE);
    else
        say(r, "kernel", DOCTOR_OK, NULL, "Linux %s, pages of 4 KiB", k->release);
    if (k->pagemap == -EBADMSG)
        say(r, "page map", DOCTOR_FAIL, "use a container or a virtual machine instead of this sandbox or emulator",
            "/proc/self/pagemap does not tell which pages have been written; swapnet stays off");
    else if (k->pagemap)
        say(r, "page map", DOCTOR_FAIL, "mount /proc, and allow /proc/self/pagemap",
            "cannot use /proc/self/pagemap: %s", strerror(-k->pagemap));
    else
        say(r, "page map", DOCTOR_OK, NULL, "tells which weights were written");
    judge_huge_pages(k, r);
    if (k->pressure)
        say(r, "pressure", DOCTOR_NOTE, "psi=1 on the kernel's command line, where it is switched off",
            "no triggers (%s): budgets that follow memory go by the clock alone", strerror(-k->pressure));
    else
        say(r, "pressure", DOCTOR_OK, NULL, "the kernel tells when memory is short");
    if (k->process_descriptor < 0)
        say(r, "swapnetd", DOCTOR_NOTE, NULL, "no descriptors of processes (%s): swapnetd looks once a second",
            strerror(-k->process_descriptor));
}

static void judge_ring(const struct doctor_store *s, struct doctor_report *r)
{
    static const char without[] = "reads go by three threads, which takes more processor time";
    if (!s->ring)
        say(r, "io_uring", DOCTOR_OK, NULL, "can be used");
    else if (s->ring_disabled > 0)
        say(r, "io_uring", DOCTOR_SLOW, "sysctl kernel.io_uring_disabled=0",
            "switched off (kernel.io_uring_disabled=%d): %s", s->ring_disabled, without);
    else if (s->ring == -EPERM || s->ring == -EACCES)
        say(r, "io_uring", DOCTOR_SLOW,
            "allow io_uring_setup, io_uring_enter and io_uring_register in the container's "
            "seccomp profile, or in the unit's SystemCallFilter",
            "forbidden, as a rule by a container's seccomp profile: %s", without);
    else if (s->ring == -ENOSYS)
        say(r, "io_uring", DOCTOR_SLOW, "use Linux 5.6 or later, or allow io_uring_setup in the seccomp profile",
            "unknown to this kernel, or hidden by a seccomp profile: %s", without);
    else if (s->ring == -ENOMEM)
        say(r, "io_uring", DOCTOR_SLOW, "raise ulimit -l (RLIMIT_MEMLOCK)", "no memory that may be locked: %s",
            without);
    else
        say(r, "io_uring", DOCTOR_SLOW, NULL, "cannot be used (%s): %s", strerror(-s->ring), without);
}

static void judge_store(const struct doctor_store *s, struct doctor_report *r)
{
    char room[32];
    static const char elsewhere[] = "set SWAPNET_STORE to a directory on a disk with room";
    judge_ring(s, r);
    if (s->error) {
        say(r, "store", DOCTOR_FAIL, elsewhere, "cannot write to the store directory %s: %s", s->dir,
            strerror(-s->error));
        return;
    }
    if (s->in_memory)
        say(r, "store", DOCTOR_SLOW, "set SWAPNET_STORE to a directory on a disk",
            "%s lies in memory (tmpfs, or an overlay over it): what is written there takes memory all the same",
            s->spill[0] ? s->spill : s->dir);
    else if (s->distrusted[0])
        say(r, "store", DOCTOR_NOTE, "set SWAPNET_STORE to a directory that only you can write to",
            "%s; programs use no block stores", s->distrusted);
    else if (s->spill[0])
        say(r, "store", DOCTOR_NOTE, NULL, "%s can only be read: what leaves memory is written to %s", s->dir,
            s->spill);
    else
        say(r, "store", DOCTOR_OK, NULL, "%s%s", s->dir, s->off ? " (spill files only: SWAPNET_STORE=off)" : "");
    if (s->free_bytes < ROOM_LEAST)
        say(r, "room", DOCTOR_NOTE, "swapnetctl cache rm --all, or set SWAPNET_STORE to a larger disk",
            "%s free: weights for which there is no room stay in memory", mib(room, s->free_bytes));
    else
        say(r, "room", DOCTOR_OK, NULL, "%s free", mib(room, s->free_bytes));
    if (s->read)
        say(r, "reads", DOCTOR_FAIL, elsewhere, "a page that was written there cannot be read: %s", strerror(-s->read));
    else if (s->path == SWN_FETCH_BUFFERED)
        say(r, "reads", DOCTOR_SLOW, "set SWAPNET_STORE to a local disk (ext4, xfs, btrfs)",
            "%s: the file system takes no direct reads, so weights go through the page cache",
            swn_fetch_path_name(s->path));
    else
        say(r, "reads", s->path == SWN_FETCH_URING ? DOCTOR_OK : DOCTOR_SLOW, NULL, "%s", swn_fetch_path_name(s->path));
}

static void judge_limits(const struct doctor_memory *m, struct doctor_report *r)
{
    char size[32];
    size_t before = r->count;
    if (m->space != UINT64_MAX)
        say(r, "limits", DOCTOR_NOTE, "ulimit -v unlimited",
            "address space is limited to %s (RLIMIT_AS): tensors get a quarter of what is left of it",
            mib(size, m->space));
    if (m->data != UINT64_MAX)
        say(r, "limits", DOCTOR_NOTE, "ulimit -d unlimited",
            "data are limited to %s (RLIMIT_DATA): so are tensors in use", mib(size, m->data));
    if (m->file != UINT64_MAX)
        say(r, "limits", DOCTOR_NOTE, "ulimit -f unlimited",
            "files are limited to %s (RLIMIT_FSIZE): so is the spill file, and what is beyond it stays in memory",
            mib(size, m->file));
    if (m->open < OPEN_LEAST)
        say(r, "limits", DOCTOR_NOTE, "ulimit -n 1024", "no more than %llu open files (RLIMIT_NOFILE)",
            (unsigned long long)m->open);
    if (r->count == before)
        say(r, "limits", DOCTOR_OK, NULL, "none that concerns tensors");
}

static void judge_memory(const struct doctor_memory *m, struct doctor_report *r)
{
    char one[32], two[32];
    if (m->error)
        say(r, "memory", DOCTOR_NOTE, "mount /proc", "cannot read /proc/meminfo: %s; budgets cannot follow memory",
            strerror(-m->error));
    else
        say(r, "memory", DOCTOR_OK, NULL, "%s, of which %s are available", mib(one, m->total),
            mib(two, m->now.available));
    if (!m->error && m->now.cgroup_limit != UINT64_MAX)
        say(r, "cgroup", DOCTOR_NOTE, "give programs a --memory below it",
            "at most %s, of which %s are used: beyond it the kernel ends programs", mib(one, m->now.cgroup_limit),
            mib(two, m->now.cgroup_usage));
    else
        say(r, "cgroup", DOCTOR_OK, NULL, "no limit");
    if (m->swap_total)
        say(r, "swap", DOCTOR_NOTE, "swapoff -a, or MemorySwapMax=0, where budgets are all that is to count",
            "%s: the kernel may write out tensors beside swapnet, which does not need it", mib(one, m->swap_total));
    else
        say(r, "swap", DOCTOR_OK, NULL, "none, and none is needed");
    if (m->overcommit == 2)
        say(r, "overcommit", DOCTOR_NOTE, "sysctl vm.overcommit_memory=0",
            "strict accounting (2): reserved addresses do not count, but an allocation may fail sooner");
    else
        say(r, "overcommit", DOCTOR_OK, NULL, "not strict");
    judge_limits(m, r);
}

static void judge_python(const struct doctor_python *p, const struct doctor_library *l, struct doctor_report *r)
{
    if (p->why[0]) {
        say(r, "python", DOCTOR_FAIL, "name the interpreter with PyTorch: swapnetctl doctor -- PYTHON", "%s: %s",
            p->command, p->why);
        return;
    }
    if (!p->torch[0]) {
        say(r, "pytorch", DOCTOR_FAIL, "name the interpreter with PyTorch: swapnetctl doctor -- PYTHON",
            "%s has no PyTorch", p->command);
        return;
    }
    if (!p->has_backend && l->error) /* the library is what is missing */
        return;
    if (!p->has_backend) {
        char advice[SWN_ERRMSG];
        swn_errmsg(advice, 0, "swapnetctl add-torch %s builds what is missing", p->command);
        say(r, "pytorch", DOCTOR_FAIL, advice, "%s has PyTorch %s, for which this swapnet was not built: it knows %s",
            p->command, p->torch, l->backends[0] ? l->backends : "none");
        return;
    }
    say(r, "pytorch", DOCTOR_OK, NULL, "%s has PyTorch %s", p->command, p->torch);
    if (!p->tried)
        return;
    if (!p->right)
        say(r, "trial", DOCTOR_FAIL, NULL, "a small program does not run under the library: %s",
            p->said[0] ? p->said : "it said nothing");
    else
        say(r, "trial", DOCTOR_OK, NULL, "64 MiB of tensors were right within 16 MiB, read by %s", p->fetch_path);
}

void doctor_judge(const struct doctor_facts *facts, struct doctor_report *report)
{
    report->count = 0;
    judge_library(&facts->library, report);
    judge_kernel(&facts->kernel, report);
    judge_store(&facts->store, report);
    judge_memory(&facts->memory, report);
    judge_python(&facts->python, &facts->library, report);
}

int doctor_is_usable(const struct doctor_report *report)
{
    for (size_t i = 0; i < report->count; i++)
        if (report->findings[i].level == DOCTOR_FAIL)
            return 0;
    return 1;
}
