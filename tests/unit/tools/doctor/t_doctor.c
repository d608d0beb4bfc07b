/* Description: what the doctor says of a machine on which one thing is broken, and what its probes find on such a one.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/support/fault_io.h"
#include "tools/doctor/facts.h"

static struct doctor_facts facts;
static struct doctor_report report;

/* A machine on which everything is as it should be. */
static void make_good(void)
{
    memset(&facts, 0, sizeof facts);
    facts.kernel = (struct doctor_kernel){
        .release = "6.12", .page_bytes = 4096, .knows_huge = 1, .huge_mode = "always [madvise] never"};
    facts.store = (struct doctor_store){.dir = "/var/store",
                                        .direct = 1,
                                        .path = SWN_FETCH_URING,
                                        .ring_disabled = -1,
                                        .free_bytes = UINT64_C(1) << 40};
    facts.memory = (struct doctor_memory){.now = {.available = 1 << 30, .cgroup_limit = UINT64_MAX, .pressure = -1},
                                          .total = UINT64_C(1) << 32,
                                          .space = UINT64_MAX,
                                          .data = UINT64_MAX,
                                          .file = UINT64_MAX,
                                          .open = 1024};
    strcpy(facts.library.path, "/usr/lib/libswapnet.so");
    strcpy(facts.library.backends, "1.13 2.13");
    facts.python = (struct doctor_python){.command = "python3",
                                          .torch = "2.13.0",
                                          .wanted = "2.13",
                                          .has_backend = 1,
                                          .tried = 1,
                                          .right = 1,
                                          .fetch_path = "io_uring+O_DIRECT"};
}

/* The one finding on `check` that is not ok, with `part` in its text. */
static const struct doctor_finding *find(const char *check, enum doctor_level level, const char *part)
{
    const struct doctor_finding *found = NULL;
    doctor_judge(&facts, &report);
    for (size_t i = 0; i < report.count; i++) {
        const struct doctor_finding *f = &report.findings[i];
        if (f->level == DOCTOR_OK)
            continue;
        assert_string_equal(f->check, check);
        assert_null(found);
        found = f;
    }
    assert_non_null(found);
    assert_int_equal(found->level, level);
    if (!strstr(found->text, part))
        fail_msg("'%s' is not in '%s'", part, found->text);
    assert_int_equal(doctor_is_usable(&report), level != DOCTOR_FAIL);
    return found;
}

#define BROKEN(change, check, level, part)                                                                             \
    do {                                                                                                               \
        make_good();                                                                                                   \
        change;                                                                                                        \
        find(check, level, part);                                                                                      \
    } while (0)

static void nothing_is_broken(void **state)
{
    (void)state;
    make_good();
    doctor_judge(&facts, &report);
    for (size_t i = 0; i < report.count; i++)
        assert_int_equal(report.findings[i].level, DOCTOR_OK);
    assert_true(doctor_is_usable(&report));
}

static void kernels(void **state)
{
    (void)state;
    BROKEN(facts.kernel.page_bytes = 16384, "kernel", DOCTOR_FAIL, "pages of 16384 bytes");
    BROKEN(facts.kernel.pagemap = -EBADMSG, "page map", DOCTOR_FAIL, "does not tell");
    BROKEN(facts.kernel.pagemap = -EACCES, "page map", DOCTOR_FAIL, "Permission denied");
    BROKEN(facts.kernel.huge = -EINVAL, "huge pages", DOCTOR_SLOW, "makes none on request");
    BROKEN(facts.kernel.huge = -ENOMEM, "huge pages", DOCTOR_SLOW, "could be made now");
    BROKEN((facts.kernel.huge = -EINVAL, facts.kernel.huge_disabled = 1), "huge pages", DOCTOR_SLOW,
           "for this process");
    BROKEN((facts.kernel.huge = -EINVAL, strcpy(facts.kernel.huge_mode, "always madvise [never]")), "huge pages",
           DOCTOR_SLOW, "the administrator");
    BROKEN(facts.kernel.pressure = -EOPNOTSUPP, "pressure", DOCTOR_NOTE, "by the clock");
    BROKEN(facts.kernel.process_descriptor = -ENOSYS, "swapnetd", DOCTOR_NOTE, "once a second");
}

static void rings_and_stores(void **state)
{
    (void)state;
    BROKEN(facts.store.ring = -EPERM, "io_uring", DOCTOR_SLOW, "seccomp");
    BROKEN((facts.store.ring = -EPERM, facts.store.ring_disabled = 2), "io_uring", DOCTOR_SLOW, "io_uring_disabled=2");
    BROKEN(facts.store.ring = -ENOSYS, "io_uring", DOCTOR_SLOW, "unknown to this kernel");
    BROKEN(facts.store.ring = -ENOMEM, "io_uring", DOCTOR_SLOW, "locked");
    BROKEN(facts.store.ring = -EOPNOTSUPP, "io_uring", DOCTOR_SLOW, "not supported");
    BROKEN(facts.store.error = -EACCES, "store", DOCTOR_FAIL, "/var/store: Permission denied");
    BROKEN(facts.store.in_memory = 1, "store", DOCTOR_SLOW, "lies in memory");
    BROKEN(strcpy(facts.store.spill, "/home/u/.cache/swapnet"), "store", DOCTOR_NOTE,
           "/var/store can only be read: what leaves memory is written to /home/u/.cache/swapnet");
    BROKEN(strcpy(facts.store.distrusted, "others can write to it"), "store", DOCTOR_NOTE, "programs use no block");
    BROKEN(facts.store.free_bytes = 1 << 20, "room", DOCTOR_NOTE, "1.0 MiB free");
    BROKEN(facts.store.path = SWN_FETCH_BUFFERED, "reads", DOCTOR_SLOW, "no direct reads");
    BROKEN(facts.store.read = -EIO, "reads", DOCTOR_FAIL, "cannot be read");
}

static void memories_and_limits(void **state)
{
    (void)state;
    BROKEN(facts.memory.error = -ENOENT, "memory", DOCTOR_NOTE, "/proc/meminfo");
    BROKEN((facts.memory.now.cgroup_limit = 100 << 20, facts.memory.now.cgroup_usage = 50 << 20), "cgroup", DOCTOR_NOTE,
           "at most 100.0 MiB, of which 50.0 MiB");
    BROKEN(facts.memory.swap_total = 1 << 30, "swap", DOCTOR_NOTE, "1024.0 MiB");
    BROKEN(facts.memory.overcommit = 2, "overcommit", DOCTOR_NOTE, "strict accounting");
    BROKEN(facts.memory.space = 1 << 30, "limits", DOCTOR_NOTE, "RLIMIT_AS");
    BROKEN(facts.memory.data = 1 << 30, "limits", DOCTOR_NOTE, "RLIMIT_DATA");
    BROKEN(facts.memory.file = 1 << 30, "limits", DOCTOR_NOTE, "RLIMIT_FSIZE");
    BROKEN(facts.memory.open = 20, "limits", DOCTOR_NOTE, "20 open files");
}

static void libraries_and_pythons(void **state)
{
    (void)state;
    BROKEN((facts.library.error = -ENOENT, strcpy(facts.library.why, "cannot use it")), "library", DOCTOR_FAIL,
           "cannot use it");
    BROKEN((facts.library.error = -ENOENT, strcpy(facts.library.why, "cannot use it"), facts.python.has_backend = 0),
           "library", DOCTOR_FAIL, "cannot use it");
    BROKEN(strcpy(facts.library.preloaded, "libjemalloc.so.2"), "preloads", DOCTOR_NOTE, "behind the library");
    BROKEN(strcpy(facts.library.unreadable, "/x.so"), "preloads", DOCTOR_NOTE, "/x.so");
    BROKEN(strcpy(facts.library.other, "/y/libswapnet.so"), "preloads", DOCTOR_FAIL, "another swapnet");
    BROKEN(strcpy(facts.python.why, "is a program of musl"), "python", DOCTOR_FAIL, "musl");
    BROKEN(facts.python.torch[0] = 0, "pytorch", DOCTOR_FAIL, "has no PyTorch");
    BROKEN(facts.python.has_backend = 0, "pytorch", DOCTOR_FAIL, "it knows 1.13 2.13");
    BROKEN((facts.python.right = 0, strcpy(facts.python.said, "off: why")), "trial", DOCTOR_FAIL, "off: why");
    /* With the interpreter that was looked at, as add-torch would otherwise take another. */
    make_good();
    facts.python.has_backend = 0;
    strcpy(facts.python.command, "/venv/bin/python");
    const struct doctor_finding *f = find("pytorch", DOCTOR_FAIL, "for which this swapnet was not built");
    assert_non_null(strstr(f->advice, "swapnetctl add-torch /venv/bin/python"));
    /* What others chose cannot act on a terminal. */
    BROKEN((facts.python.right = 0, strcpy(facts.python.said, "a\033[2Jb")), "trial", DOCTOR_FAIL, "a?[2Jb");
}

/* ---- the probes ---- */

static char dir[64];

static int make_dir(void **state)
{
    (void)state;
    memset(&facts, 0, sizeof facts);
    strcpy(dir, "/var/tmp/t_doctor.XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    return system(command);
}

static void put(const char *name, const char *text)
{
    char path[256], command[512];
    snprintf(command, sizeof command, "mkdir -p \"$(dirname '%s%s')\"", dir, name);
    assert_int_equal(system(command), 0);
    snprintf(path, sizeof path, "%s%s", dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int no_ring(void *ctx, struct io_uring *ring, unsigned entries)
{
    (void)ctx, (void)ring, (void)entries;
    return -EPERM;
}

static struct swn_fault fault;

static void look_at_store(const struct swn_io *io)
{
    char setting[128];
    snprintf(setting, sizeof setting, "SWAPNET_STORE=%s/store", dir);
    char *env[] = {setting, NULL};
    memset(&facts.store, 0, sizeof facts.store);
    doctor_look_at_store(&facts.store, io, dir, env);
}

static void a_store_without_a_ring_and_without_direct_reads(void **state)
{
    (void)state;
    swn_fault_init(&fault);
    look_at_store(&fault.io);
    assert_int_equal(facts.store.error, 0);
    assert_int_equal(facts.store.read, 0);
    assert_int_equal(facts.store.ring_disabled, -1);
    assert_true(facts.store.free_bytes > 0);

    fault.io.ring_setup = no_ring;
    put("/proc/sys/kernel/io_uring_disabled", "1\n");
    look_at_store(&fault.io);
    assert_int_equal(facts.store.ring, -EPERM);
    assert_int_equal(facts.store.ring_disabled, 1);
    assert_int_equal(facts.store.read, 0);
    assert_int_not_equal(facts.store.path, SWN_FETCH_URING);

    fault.no_direct = 1;
    look_at_store(&fault.io);
    assert_int_equal(facts.store.direct, 0);
    assert_int_equal(facts.store.path, SWN_FETCH_BUFFERED);
    assert_int_equal(facts.store.read, 0);
    assert_int_equal(fault.open_files, 0);
}

/* Whichever operation fails, for ever: a verdict, and no descriptor is left. */
static void a_disk_that_fails(void **state)
{
    int failed = 0;
    (void)state;
    swn_fault_init(&fault);
    look_at_store(&fault.io);
    long operations = fault.count;
    assert_true(operations > 3);
    for (long at = 1; at <= operations; at++) {
        swn_fault_arm(&fault, at, 1, -EIO);
        look_at_store(&fault.io);
        failed += facts.store.error != 0 || facts.store.read != 0;
        assert_int_equal(fault.open_files, 0);
    }
    assert_true(failed > 0);
}

static void a_store_that_is_no_directory(void **state)
{
    (void)state;
    put("/store", "");
    look_at_store(&swn_io_sys);
    assert_int_equal(facts.store.error, -ENOTDIR);
}

static int open_read_only(void *ctx, const char *path, int flags, mode_t mode)
{
    int writes = (flags & O_ACCMODE) != O_RDONLY || (flags & O_CREAT);
    return strstr(path, "/shared") && writes ? -EROFS : swn_io_sys.open(ctx, path, flags, mode);
}

/* What leaves memory goes to the default directory, as the library does it. */
static void a_store_that_can_only_be_read(void **state)
{
    char shared[128], home[128], long_one[PATH_MAX + 20], expected[256];
    char *env[] = {shared, home, NULL};
    struct swn_io io = swn_io_sys;
    (void)state;
    io.open = open_read_only;
    put("/shared/x", "");
    snprintf(shared, sizeof shared, "SWAPNET_STORE=%s/shared", dir);
    snprintf(home, sizeof home, "HOME=%s", dir);
    doctor_look_at_store(&facts.store, &io, dir, env);
    assert_int_equal(facts.store.error, 0);
    assert_int_equal(facts.store.read, 0);
    assert_string_equal(facts.store.dir, shared + strlen("SWAPNET_STORE="));
    snprintf(expected, sizeof expected, "%s/.cache/swapnet", dir);
    assert_string_equal(facts.store.spill, expected);
    assert_true(facts.store.free_bytes > 0);

    strcpy(home, "HOME="); /* there is no such directory */
    memset(&facts.store, 0, sizeof facts.store);
    doctor_look_at_store(&facts.store, &io, dir, env);
    assert_int_equal(facts.store.error, -EROFS);
    assert_string_equal(facts.store.spill, "");

    env[0] = home;
    memset(&facts.store, 0, sizeof facts.store);
    doctor_look_at_store(&facts.store, &io, dir, env);
    assert_int_equal(facts.store.error, -ENOENT);
    assert_string_equal(facts.store.dir, "(no HOME)");

    strcpy(long_one, "SWAPNET_STORE=/");
    memset(long_one + strlen(long_one), 'x', sizeof long_one - strlen(long_one) - 1);
    long_one[sizeof long_one - 1] = 0;
    env[0] = long_one;
    memset(&facts.store, 0, sizeof facts.store);
    doctor_look_at_store(&facts.store, &io, dir, env);
    assert_int_equal(facts.store.error, -ENAMETOOLONG);
    assert_null(strstr(facts.store.dir, "HOME"));
}

/* Programs would not use the stores in it. */
static void a_store_that_others_can_write_to(void **state)
{
    char path[128];
    (void)state;
    put("/store/x", "");
    snprintf(path, sizeof path, "%s/store", dir);
    assert_int_equal(chmod(path, 01777), 0);
    look_at_store(&swn_io_sys);
    assert_int_equal(facts.store.error, 0);
    assert_non_null(strstr(facts.store.distrusted, path));
    assert_int_equal(chmod(path, 0700), 0);
    look_at_store(&swn_io_sys);
    assert_string_equal(facts.store.distrusted, "");
}

static void limits_and_memory(void **state)
{
    struct rlimit before, files;
    (void)state;
    put("/proc/meminfo", "MemTotal: 2048 kB\nMemAvailable: 1024 kB\nSwapTotal: 512 kB\n");
    put("/proc/sys/vm/overcommit_memory", "2\n");
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    files = before;
    files.rlim_cur = 64 << 20;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &files), 0);
    doctor_look_at_memory(&facts.memory, dir);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(facts.memory.error, 0);
    assert_int_equal(facts.memory.total, 2 << 20);
    assert_int_equal(facts.memory.swap_total, 512 << 10);
    assert_int_equal(facts.memory.overcommit, 2);
    assert_int_equal(facts.memory.file, 64 << 20);
}

static void preloads(void **state)
{
    char list[256], library[100];
    (void)state;
    put("/lib/swapnet/aten-2.13.so", "");
    put("/lib/swapnet/aten-1.13.so", "");
    put("/lib/swapnet/serve-1.13.so", "");
    put("/etc/ld.so.preload", "# /opt/old/lib/libswapnet.so\nlibsnoopy.so # /a.so\n#");
    snprintf(library, sizeof library, "%s/lib/libswapnet.so", dir);
    char command[512]; /* anything that can be at any address */
    snprintf(command, sizeof command, "cp \"$(readlink -f /proc/%d/exe)\" '%s/lib/libswapnet.so'", getpid(), dir);
    assert_int_equal(system(command), 0);
    snprintf(list, sizeof list, "%s:%s/nowhere.so libjemalloc.so.2", library, dir);
    doctor_look_at_library(&facts.library, dir, library, list);
    assert_int_equal(facts.library.error, 0);
    assert_string_equal(facts.library.backends, "1.13 2.13");
    assert_string_equal(facts.library.preloaded, "libjemalloc.so.2 libsnoopy.so");
    assert_non_null(strstr(facts.library.unreadable, "/nowhere.so"));
    assert_string_equal(facts.library.other, "");
    doctor_look_at_library(&facts.library, dir, library, "/opt/other/libswapnet.so");
    assert_string_equal(facts.library.other, "/opt/other/libswapnet.so");
}

/* An interpreter that says something else, nothing, or too much. */
static void pythons(void **state)
{
    static const struct {
        const char *text, *torch, *why;
    } programs[] = {
        {"#!/bin/sh\necho; echo PyTorch 2.13.0+cpu\n", "2.13.0+cpu", ""},
        {"#!/bin/sh\necho; echo PyTorch -\n", "", ""},
        {"#!/bin/sh\necho what else >&2; exit 3\n", "", "what else"},
        {"#!/bin/sh\nexit 3\n", "", "exit status 3"},
        {"#!/bin/sh\nkill -9 $$\n", "", "killed by signal 9"},
        {"#!/bin/sh\nhead -c 1000000 /dev/zero; exit 1\n", "", "exit status 1"},
    };
    (void)state;
    strcpy(facts.library.path, "/nowhere/libswapnet.so");
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        memset(&facts.python, 0, sizeof facts.python);
        put("/python", programs[i].text);
        snprintf(facts.python.command, sizeof facts.python.command, "%s/python", dir);
        chmod(facts.python.command, 0700);
        doctor_look_at_python(&facts.python, &facts.library);
        assert_string_equal(facts.python.torch, programs[i].torch);
        if (*programs[i].why)
            assert_non_null(strstr(facts.python.why, programs[i].why));
        else
            assert_string_equal(facts.python.why, "");
        assert_false(facts.python.has_backend);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_broken),
        cmocka_unit_test(kernels),
        cmocka_unit_test(rings_and_stores),
        cmocka_unit_test(memories_and_limits),
        cmocka_unit_test(libraries_and_pythons),
        cmocka_unit_test_setup_teardown(a_store_without_a_ring_and_without_direct_reads, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_disk_that_fails, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_store_that_is_no_directory, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_store_that_can_only_be_read, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_store_that_others_can_write_to, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(limits_and_memory, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(preloads, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(pythons, make_dir, remove_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
