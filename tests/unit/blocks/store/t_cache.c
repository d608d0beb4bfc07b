/* Description: the cache gives the store of exactly that file or none, stays within its cap, and trusts no directory
 * that others can write to. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit/support/archive.h"
#include "blocks/store/cache.h"
#include "tests/unit/support/fault_io.h"
#include "base/fd_registry.h"

#define FLOATS 3000
#define STORE_BYTES (4096 + (FLOATS * 4 + 4095) / 4096 * 4096)

static char top[512], dir[600], why[SWN_ERRMSG];
static struct swn_fault fault;

static int setup(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(top, sizeof top, "%s/t_cache.XXXXXX", tmp && *tmp ? tmp : "/var/tmp");
    if (!mkdtemp(top))
        return -1;
    snprintf(dir, sizeof dir, "%s/a/cache", top);
    swn_fault_init(&fault);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    char command[700];
    snprintf(command, sizeof command, "rm -rf '%s'", top);
    return system(command) || fault.open_files;
}

/* A safetensors file with one tensor, all of `value`; returns a descriptor. */
static int make_file(const char *name, float value)
{
    char path[700], header[256];
    static float data[FLOATS];
    snprintf(path, sizeof path, "%s/%s", top, name);
    int len = snprintf(header, sizeof header,
                       "{\"m.weight\":{\"dtype\":\"F32\",\"shape\":[%d],\"data_offsets\":[0,%d]}}", FLOATS, FLOATS * 4);
    while (len % 8)
        header[len++] = ' ';
    uint64_t size = (uint64_t)len;
    for (size_t i = 0; i < FLOATS; i++)
        data[i] = value;
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, &size, 8), 8);
    assert_int_equal(write(fd, header, (size_t)len), len);
    assert_int_equal(write(fd, data, sizeof data), sizeof data);
    return fd;
}

static int build_within(int fd, const char *name, const struct swn_cache_limits *limits)
{
    struct swn_checkpoint *c = NULL;
    struct swn_store *s = NULL;
    int rc = swn_checkpoint_open_fd(&c, &fault.io, fd, name, why);
    if (rc)
        fail_msg("checkpoint: %d %s", rc, why);
    rc = swn_cache_build(&s, &fault.io, dir, limits, c, NULL, why);
    if (!rc) {
        assert_int_equal(s->tensor_count, 1);
        assert_int_equal(s->total_bytes, STORE_BYTES);
        swn_store_close(s, &fault.io);
    }
    swn_checkpoint_close(c, &fault.io);
    return rc;
}

static int try_build(int fd, const char *name, uint64_t cap)
{
    return build_within(fd, name, &(struct swn_cache_limits){.cache_limit_bytes = cap});
}

static int found(int fd)
{
    struct swn_store *s = NULL;
    int rc = swn_cache_open(&s, &fault.io, dir, fd, why);
    if (!rc)
        swn_store_close(s, &fault.io);
    return rc;
}

static void age(int fd, int seconds_ago)
{
    char path[4096];
    struct swn_identity id;
    assert_int_equal(swn_identity_stat(&swn_io_sys, fd, &id), 0);
    swn_cache_path(dir, &id, path, sizeof path);
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = time(NULL) - seconds_ago}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static size_t stores(void)
{
    struct swn_cache_entry *e;
    size_t n;
    assert_int_equal(swn_cache_list(&e, &n, &fault.io, dir, 0, why), 0);
    swn_cache_list_free(e, n);
    return n;
}

static void built_and_found(void **state)
{
    (void)state;
    struct stat st;
    struct swn_store *s = NULL;
    int fd = make_file("one", 1);
    assert_int_equal(found(fd), -ENOENT);
    assert_int_equal(try_build(fd, "one", 0), 0);
    assert_int_equal(stat(dir, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);

    age(fd, 1000);
    assert_int_equal(swn_cache_open(&s, &fault.io, dir, fd, why), 0);
    float *data = aligned_alloc(4096, 4096 * 3);
    assert_int_equal(pread(s->file.fd, data, sizeof(float) * FLOATS, (off_t)s->extents[0].off), sizeof(float) * FLOATS);
    assert_int_equal(swn_store_check(&s->extents[0], data), 0);
    assert_true(data[0] == 1 && data[FLOATS - 1] == 1);
    free(data);
    /* Marked as used now, and its identity is that of after. */
    assert_int_equal(fstat(s->file.fd, &st), 0);
    assert_true(st.st_mtime > time(NULL) - 500);
    assert_int_equal(s->identity.mtime_ns, (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec);
    assert_int_equal(st.st_mode & 0777, 0600);

    /* Removed while open, it stays readable. */
    struct swn_cache_entry *e;
    size_t n;
    assert_int_equal(swn_cache_list(&e, &n, &fault.io, dir, 1, why), 0);
    assert_int_equal(n, 1);
    assert_int_equal(e[0].bytes, STORE_BYTES);
    assert_string_equal(e[0].source, "one");
    assert_int_equal(swn_cache_remove(&fault.io, dir, e[0].name, why), 0);
    assert_int_equal(swn_cache_remove(&fault.io, dir, e[0].name, why), -ENOENT);
    swn_cache_list_free(e, n);
    assert_int_equal(stores(), 0);
    char byte;
    assert_int_equal(pread(s->file.fd, &byte, 1, (off_t)s->total_bytes - 1), 1);
    swn_store_close(s, &fault.io);
    assert_int_equal(found(fd), -ENOENT);
    close(fd);
}

/* Same name, same size, other bytes. */
static void changed_files_are_others(void **state)
{
    (void)state;
    int fd = make_file("one", 1);
    assert_int_equal(try_build(fd, "one", 0), 0);
    assert_int_equal(found(fd), 0);
    assert_int_equal(pwrite(fd, "x", 1, 5000), 1); /* in place */
    assert_int_equal(found(fd), -ENOENT);
    close(fd);
    fd = make_file("one", 2); /* rewritten */
    assert_int_equal(found(fd), -ENOENT);
    int copy = make_file("two", 1); /* the bytes it was built from, in another file */
    assert_int_equal(found(copy), -ENOENT);
    close(copy);
    close(fd);
}

/* A store under the right name of the wrong file: the cache was copied about. */
static void wrong_name(void **state)
{
    (void)state;
    char a[4096], b[4096];
    struct swn_identity id;
    int one = make_file("one", 1), two = make_file("two", 2);
    assert_int_equal(try_build(one, "one", 0), 0);
    swn_identity_stat(&swn_io_sys, one, &id);
    swn_cache_path(dir, &id, a, sizeof a);
    swn_identity_stat(&swn_io_sys, two, &id);
    swn_cache_path(dir, &id, b, sizeof b);
    assert_string_not_equal(a, b);
    assert_int_equal(link(a, b), 0);
    assert_int_equal(found(two), -ENOENT);
    assert_int_equal(found(one), 0);
    close(one);
    close(two);
}

static void cap(void **state)
{
    (void)state;
    uint64_t bytes;
    int fd[4];
    for (int i = 0; i < 4; i++) {
        char name[8] = {'m', (char)('0' + i), 0};
        fd[i] = make_file(name, (float)i);
        assert_int_equal(try_build(fd[i], name, 3 * STORE_BYTES), 0);
        age(fd[i], 100 - i);
        if (i == 2) { /* the oldest by name, but used last */
            assert_int_equal(found(fd[0]), 0);
        }
    }
    assert_int_equal(found(fd[1]), -ENOENT);
    assert_int_equal(found(fd[0]), 0);
    assert_int_equal(stores(), 3);
    /* Building one anew needs no more room than it has. */
    assert_int_equal(try_build(fd[2], "m2", 3 * STORE_BYTES), 0);
    assert_int_equal(stores(), 3);
    assert_int_equal(try_build(fd[1], "m1", STORE_BYTES - 1), -EFBIG);
    assert_int_equal(stores(), 3);
    assert_int_equal(try_build(fd[1], "m1", STORE_BYTES), 0);
    assert_int_equal(stores(), 1);
    for (int i = 0; i < 4; i++)
        close(fd[i]);

    /* The cap that is kept in the directory. */
    assert_int_equal(swn_cache_cap(&fault.io, dir, &bytes, why), 0);
    assert_true(bytes > 0 && bytes <= SWN_CACHE_CAP_BYTES);
    assert_int_equal(swn_cache_set_cap(&fault.io, dir, 12345, why), 0);
    assert_int_equal(swn_cache_cap(&fault.io, dir, &bytes, why), 0);
    assert_int_equal(bytes, 12345);
    assert_int_equal(swn_cache_set_cap(&fault.io, dir, 0, why), 0);
    assert_int_equal(swn_cache_cap(&fault.io, dir, &bytes, why), 0);
    assert_int_equal(bytes, 0);
    static const char *const bad[] = {"", "x\n", "12", "-1\n", "99999999999999999999999\n", "1\n2\n"};
    char path[700];
    snprintf(path, sizeof path, "%s/cap", dir);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int file = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
        assert_int_equal(write(file, bad[i], strlen(bad[i])), (ssize_t)strlen(bad[i]));
        close(file);
        assert_int_equal(swn_cache_cap(&fault.io, dir, &bytes, why), -EINVAL);
    }
    assert_int_equal(swn_cache_remove(&fault.io, dir, "cap", why), -EINVAL);
    assert_int_equal(swn_cache_remove(&fault.io, dir, "../x", why), -EINVAL);
}

/* The stores of a model's other shards. */
static void some_are_kept(void **state)
{
    (void)state;
    char path[4096];
    struct swn_identity id;
    int fd[3];
    for (int i = 0; i < 3; i++) {
        char name[8] = {'m', (char)('0' + i), 0};
        fd[i] = make_file(name, (float)i);
        if (i < 2)
            assert_int_equal(try_build(fd[i], name, 0), 0);
        if (i < 2)
            age(fd[i], 100 - i);
    }
    assert_int_equal(swn_identity_stat(&swn_io_sys, fd[0], &id), 0);
    swn_cache_path(dir, &id, path, sizeof path);
    const char *keep[] = {strrchr(path, '/') + 1};
    struct swn_cache_limits limits = {.cache_limit_bytes = 2 * STORE_BYTES - 1, .keep = keep, .keep_count = 1};
    assert_int_equal(build_within(fd[2], "m2", &limits), -EFBIG);
    assert_int_equal(stores(), 2); /* nothing was removed in vain */
    limits.cache_limit_bytes++;
    limits.reserved_bytes = 1;
    assert_int_equal(build_within(fd[2], "m2", &limits), -EFBIG);
    assert_int_equal(stores(), 2);
    limits.reserved_bytes = 0;
    assert_int_equal(build_within(fd[2], "m2", &limits), 0);
    assert_int_equal(found(fd[0]), 0); /* though it was used before the other one */
    assert_int_equal(found(fd[1]), -ENOENT);
    /* One that is itself to be built anew. */
    limits.cache_limit_bytes = 2 * STORE_BYTES;
    assert_int_equal(build_within(fd[0], "m0", &limits), 0);
    assert_int_equal(stores(), 2);
    for (int i = 0; i < 3; i++)
        close(fd[i]);
}

static int beside(const char *store, const char *suffix, int make)
{
    char path[5000];
    snprintf(path, sizeof path, "%s/%s%s", dir, store, suffix);
    if (make)
        close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    return access(path, F_OK) == 0;
}

/* What lies beside a store goes with it, and is no store itself. */
static void nothing_beside_nothing(void **state)
{
    (void)state;
    static const char gone[] = "0123456789abcdef0123456789abcdef.swnstore";
    struct swn_cache_entry *e;
    size_t n;
    int fd = make_file("one", 1);
    assert_int_equal(try_build(fd, "one", 0), 0);
    assert_int_equal(swn_cache_list(&e, &n, &fault.io, dir, 0, why), 0);
    assert_int_equal(n, 1);
    static const char *const suffixes[] = {".order", ".table", ".else"};
    for (size_t i = 0; i < 3; i++)
        assert_true(beside(e[0].name, suffixes[i], 1) && beside(gone, suffixes[i], 1));
    const struct swn_cache_limits limits = {.cache_limit_bytes = 1 << 20};
    assert_int_equal(swn_cache_trim(&fault.io, dir, &limits, 0, NULL, why), 0);
    for (size_t i = 0; i < 3; i++) {
        assert_true(beside(e[0].name, suffixes[i], 0));
        assert_int_equal(beside(gone, suffixes[i], 0), i == 2); /* not one of ours */
    }
    assert_int_equal(swn_cache_remove(&fault.io, dir, e[0].name, why), 0);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(beside(e[0].name, suffixes[i], 0), i == 2);
    swn_cache_list_free(e, n);
    close(fd);
}

static void directories_of_others(void **state)
{
    (void)state;
    int fd = make_file("one", 1);
    assert_int_equal(try_build(fd, "one", 0), 0);
    static const mode_t open_to_others[] = {0770, 0707, 01777};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(chmod(dir, open_to_others[i]), 0);
        assert_int_equal(found(fd), -EPERM);
        assert_true(!strstr(why, "chmod") == !!(open_to_others[i] & S_ISVTX)); /* not on /tmp, as root */
        assert_int_equal(try_build(fd, "one", 0), -EPERM);
        assert_int_equal(swn_cache_set_cap(&fault.io, dir, 1, why), -EPERM);
    }
    assert_int_equal(chmod(dir, 0755), 0);
    assert_int_equal(found(fd), 0);
    if (geteuid() == 0) {
        assert_int_equal(chown(dir, 65534, 65534), 0);
        assert_int_equal(found(fd), -EPERM);
        assert_int_equal(chown(dir, 0, 0), 0);
    }
    close(fd);
}

static void two_at_once(void **state)
{
    (void)state;
    int fd = make_file("one", 1);
    for (int round = 0; round < 20; round++) {
        pid_t pids[3];
        for (int i = 0; i < 3; i++) {
            pids[i] = fork();
            assert_true(pids[i] >= 0);
            if (!pids[i])
                _exit(try_build(fd, "one", 4 * STORE_BYTES) ? 1 : 0);
        }
        for (int i = 0; i < 3; i++) {
            int status;
            assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
            assert_true(WIFEXITED(status) && !WEXITSTATUS(status));
        }
        assert_int_equal(stores(), 1);
        assert_int_equal(found(fd), 0);
    }
    close(fd);
}

static void fail_each(int err)
{
    int fd = make_file("one", 1), failed = 0;
    long points = 0;
    fault.no_sync = 1;
    assert_int_equal(try_build(fd, "one", 0), 0);
    for (int for_ever = 0; for_ever < 2; for_ever++) {
        for (long at = 1;; at++) {
            struct swn_checkpoint *c = NULL;
            struct swn_store *s = NULL;
            assert_int_equal(swn_checkpoint_open_fd(&c, &swn_io_sys, fd, "one", why), 0);
            swn_fault_arm(&fault, at, for_ever, err);
            int rc = swn_cache_build(&s, &fault.io, dir,
                                     &(struct swn_cache_limits){.cache_limit_bytes = 3 * STORE_BYTES}, c, NULL, why);
            if (!rc) {
                swn_store_close(s, &fault.io);
                rc = swn_cache_open(&s, &fault.io, dir, fd, why);
            }
            if (!rc)
                swn_store_close(s, &fault.io);
            long fired = fault.fired;
            swn_fault_arm(&fault, 0, 0, 0);
            swn_checkpoint_close(c, &swn_io_sys);
            failed += rc != 0;
            points++;
            assert_int_equal(fault.open_files, 0);
            assert_int_equal(found(fd), 0); /* the old one or the new one */
            assert_int_equal(stores(), 1);
            if (!fired) {
                assert_int_equal(rc, 0);
                break;
            }
        }
    }
    assert_true(failed > 10);
    print_message("%ld points\n", points);
    close(fd);
}

static void any_operation_fails(void **state)
{
    (void)state;
    fail_each(-EIO);
}

/* As a full disk, and a user's quota. */
static void no_room_anywhere(void **state)
{
    (void)state;
    fail_each(-ENOSPC);
}

static void no_quota_anywhere(void **state)
{
    (void)state;
    fail_each(-EDQUOT);
}

static int64_t ctime_ns;

static int dated_fstat(void *ctx, int fd, struct stat *st)
{
    int rc = swn_io_sys.fstat(ctx, fd, st);
    st->st_ctim = (struct timespec){.tv_sec = ctime_ns / 1000000000, .tv_nsec = ctime_ns % 1000000000};
    return rc;
}

/* Whether the times of a file will tell of the next write. */
static void times_settle(void **state)
{
    (void)state;
    struct swn_identity id = {0}, now;
    struct swn_io dated = swn_io_sys;
    struct timespec t;
    int fd = make_file("one", 1);
    assert_int_equal(swn_identity_settle(&swn_io_sys, fd, 1000, &id), 0);
    assert_int_equal(swn_identity_stat(&swn_io_sys, fd, &now), 0);
    assert_memory_equal(&id, &now, sizeof id);

    dated.fstat = dated_fstat;
    clock_gettime(CLOCK_REALTIME, &t);
    ctime_ns = (t.tv_sec - 1) * INT64_C(1000000000); /* a whole second: any time within it, or the next */
    assert_int_equal(swn_identity_settle(&dated, fd, 0, &id), -ESTALE);
    assert_int_equal(swn_identity_settle(&dated, fd, 3000, &id), 0);
    clock_gettime(CLOCK_REALTIME, &t);
    assert_true(t.tv_sec * INT64_C(1000000000) + t.tv_nsec > ctime_ns + INT64_C(2000000000));
    ctime_ns = (t.tv_sec + 100) * INT64_C(1000000000) + 1; /* a wrong clock */
    assert_int_equal(swn_identity_settle(&dated, fd, 3000, &id), -ESTALE);
    close(fd);

    fd = memfd_create("one", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(swn_identity_settle(&swn_io_sys, fd, 1000, &id), -ENOTSUP);
    close(fd);
}

/* Files of read-only images have the times that were chosen for them. */
static struct stat forged;
static int forged_fd = -1;
static long forged_reads;

static int forged_fstat(void *ctx, int fd, struct stat *st)
{
    if (fd == forged_fd) {
        *st = forged;
        return 0;
    }
    return fault.io.fstat(ctx, fd, st);
}

static ssize_t counted_pread(void *ctx, int fd, void *buf, size_t len, uint64_t off)
{
    forged_reads++;
    return fault.io.pread(ctx, fd, buf, len, off);
}

/* Another file of the same inode, size, times and header, as after an update: its bytes are looked at. */
static void same_in_all_but_bytes(void **state)
{
    (void)state;
    struct swn_store *s = NULL;
    struct swn_io io = fault.io;
    int one = make_file("one", 1), two = make_file("two", 2), again = make_file("three", 1);
    assert_int_equal(try_build(one, "one", 0), 0);
    assert_int_equal(fstat(one, &forged), 0);
    io.fstat = forged_fstat;
    io.pread = counted_pread;
    forged_fd = again;
    assert_int_equal(swn_cache_open(&s, &io, dir, again, why), 0);
    swn_store_close(s, &io);
    assert_in_range(forged_reads, 10, 200); /* of 4 KiB */
    forged_fd = two;
    assert_int_equal(swn_cache_open(&s, &io, dir, two, why), -ENOENT);
    assert_non_null(strstr(why, "of other bytes"));
    /* Nothing of its first block. */
    assert_int_equal(pwrite(one, "x", 1, forged.st_size - 1), 1);
    forged_fd = one;
    assert_int_equal(swn_cache_open(&s, &io, dir, one, why), -ENOENT);
    /* Hardly any of its bytes, but some of each block. */
    for (off_t at = forged.st_size - 1; at > forged.st_size - FLOATS * 4; at -= 1000)
        assert_int_equal(pwrite(again, "x", 1, at), 1);
    forged_fd = again;
    assert_int_equal(swn_cache_open(&s, &io, dir, again, why), -ENOENT);
    forged_fd = -1;
    close(one);
    close(two);
    close(again);
}

/* What opening `fd` says when stat cannot tell it from `like`. */
static int opened_as(int fd, int like)
{
    struct swn_store *s = NULL;
    struct swn_io io = fault.io;
    io.fstat = forged_fstat;
    assert_int_equal(fstat(like, &forged), 0);
    forged_fd = fd;
    int rc = swn_cache_open(&s, &io, dir, fd, why);
    forged_fd = -1;
    if (!rc)
        swn_store_close(s, &io);
    return rc;
}

static void build_store(int fd, const char *name)
{
    struct swn_checkpoint *c = NULL;
    struct swn_store *s = NULL;
    assert_int_equal(swn_checkpoint_open_fd(&c, &fault.io, fd, name, why), 0);
    assert_int_equal(swn_fd_registry_first(c->files[0].fd, c->files[0].fd),
                     c->files[0].fd); /* it can be kept for long */
    assert_int_equal(swn_cache_build(&s, &fault.io, dir, &(struct swn_cache_limits){0}, c, NULL, why), 0);
    swn_store_close(s, &fault.io);
    swn_checkpoint_close(c, &fault.io);
}

/* Adapters, norms or heads only: one tensor of many is another. */
static void one_of_many_tensors(void **state)
{
    (void)state;
    enum { TENSORS = 200, VALUES = 16384 };
    static char header[TENSORS * 100];
    static float data[TENSORS * VALUES];
    int fd[2];
    size_t len = 0;
    for (int i = 0; i < TENSORS; i++)
        len += (size_t)snprintf(header + len, sizeof header - len,
                                "%s\"t%d\":{\"dtype\":\"F32\",\"shape\":[%d],\"data_offsets\":[%d,%d]}", i ? "," : "{",
                                i, VALUES, i * VALUES * 4, (i + 1) * VALUES * 4);
    header[len++] = '}';
    while (len % 8)
        header[len++] = ' ';
    for (int i = 0; i < 2; i++) {
        char path[700];
        uint64_t size = len;
        snprintf(path, sizeof path, "%s/many%d", top, i);
        for (int block = 0; block < VALUES / 1024; block++)
            data[101 * VALUES + block * 1024] = (float)i;
        fd[i] = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        assert_int_equal(write(fd[i], &size, 8), 8);
        assert_int_equal(write(fd[i], header, len), len);
        assert_int_equal(write(fd[i], data, sizeof data), sizeof data);
    }
    build_store(fd[0], "many0");
    assert_int_equal(opened_as(fd[0], fd[0]), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(opened_as(fd[1], fd[0]), -ENOENT);
    close(fd[0]);
    close(fd[1]);
}

/* PyTorch can be told to leave checksums out, and then a zip's directory says nothing of the bytes. */
static void zips_of_other_bytes(void **state)
{
    (void)state;
    int fd[2];
    for (int i = 0; i < 2; i++) {
        struct archive a;
        char path[700];
        snprintf(path, sizeof path, "%s/zip%d", top, i);
        archive_small(&a);
        archive_finish(&a);
        a.p[a.e[1].data + 1] ^= (unsigned char)i;
        fd[i] = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        assert_int_equal(write(fd[i], a.p, a.n), a.n);
        archive_free(&a);
    }
    build_store(fd[0], "zip0");
    assert_int_equal(opened_as(fd[0], fd[0]), 0);
    assert_int_equal(opened_as(fd[1], fd[0]), -ENOENT);
    close(fd[0]);
    close(fd[1]);
}

static int written_fd;

static void write_there(void *user)
{
    (void)user;
    assert_int_equal(pwrite(written_fd, "x", 1, 5000), 1);
}

static int synced;

static int noted_fsync(void *ctx, int fd)
{
    synced = 1;
    return fault.io.fsync(ctx, fd);
}

static int fstat_after_fsync(void *ctx, int fd, struct stat *st)
{
    assert_true(synced);
    return fault.io.fstat(ctx, fd, st);
}

/* A page that is dirty takes further stores through a shared mapping without a change of the times. */
static void stores_show_from_now_on(void **state)
{
    (void)state;
    struct swn_io io = fault.io;
    struct swn_checkpoint *c;
    struct swn_identity now;
    int fd = make_file("one", 1);
    char *mapped = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(mapped != MAP_FAILED);
    mapped[5000] = 1;
    io.fsync = noted_fsync;
    io.fstat = fstat_after_fsync;
    synced = 0;
    assert_int_equal(swn_checkpoint_open_settled(&c, &io, fd, "one", 3000, why), 0);
    usleep(20000);
    mapped[5000] = 2;
    assert_int_equal(swn_identity_stat(&swn_io_sys, fd, &now), 0);
    assert_false(swn_identity_same_file(&now, &c->files[0].identity));
    swn_checkpoint_close(c, &io);
    munmap(mapped, 8192);
    close(fd);
}

/* A store has the identity that had settled, or there is none. */
static void written_while_it_is_opened(void **state)
{
    (void)state;
    struct swn_checkpoint *c;
    struct swn_identity settled;
    written_fd = make_file("one", 1);
    assert_int_equal(swn_checkpoint_open_settled(&c, &fault.io, written_fd, "one", 3000, why), 0);
    assert_int_equal(swn_identity_stat(&swn_io_sys, written_fd, &settled), 0);
    assert_true(swn_identity_same_file(&settled, &c->files[0].identity));
    swn_checkpoint_close(c, &fault.io);
    /* after fsync, and the one fstat of a file that settled long ago: it is written to within its new tick */
    usleep(50000);
    swn_fault_arm(&fault, 3, 0, 0);
    fault.hook = write_there;
    int rc = swn_checkpoint_open_settled(&c, &fault.io, written_fd, "one", 3000, why);
    fault.hook = NULL;
    swn_fault_arm(&fault, 0, 0, 0);
    assert_int_equal(rc, -ESTALE);
    close(written_fd);
}

static int spoilt_reads;

static ssize_t spoilt_pread(void *ctx, int fd, void *buf, size_t len, uint64_t off)
{
    ssize_t n = swn_io_sys.pread(ctx, fd, buf, len, off);
    if (n > 0 && spoilt_reads-- > 0)
        ((char *)buf)[n / 2] ^= 1;
    return n;
}

/* Bytes may be spoilt on their way from the disk: a mismatch is read once more, and once only. */
static void mismatch_is_read_twice(void **state)
{
    (void)state;
    struct swn_store *s = NULL;
    struct swn_io spoilt = swn_io_sys;
    int fd = make_file("one", 1);
    assert_int_equal(try_build(fd, "one", 0), 0);
    assert_int_equal(swn_cache_open(&s, &fault.io, dir, fd, why), 0);
    spoilt.pread = spoilt_pread;
    for (int times = 0; times < 3; times++) {
        spoilt_reads = times;
        assert_int_equal(swn_store_verify_extent(s, &spoilt, &s->extents[0], 1 << 20), times < 2 ? 0 : -EILSEQ);
        assert_int_equal(spoilt_reads, times == 2 ? 0 : -1);
    }
    swn_store_close(s, &fault.io);
    close(fd);
}

static int meanwhile; /* a file whose store another process builds while one is being built; -1: none */

static int build_another(void *ctx, int fd, int mode, uint64_t off, uint64_t len)
{
    int other = meanwhile;
    meanwhile = -1;
    if (other >= 0)
        assert_int_equal(try_build(other, "two", STORE_BYTES), 0);
    return swn_io_sys.fallocate(ctx, fd, mode, off, len);
}

/* Each of the two made room before the other's store was there. */
static void builds_side_by_side_keep_to_the_cap(void **state)
{
    (void)state;
    int one = make_file("one", 1);
    meanwhile = make_file("two", 2);
    int two = meanwhile;
    fault.io.fallocate = build_another;
    assert_int_equal(try_build(one, "one", STORE_BYTES), 0);
    assert_int_equal(meanwhile, -1);
    assert_int_equal(stores(), 1);
    assert_int_equal(found(one), 0);
    assert_int_equal(found(two), -ENOENT);
    close(one);
    close(two);
}

static size_t room; /* stores for which the disk has room */

static int full_disk(void *ctx, int fd, int mode, uint64_t off, uint64_t len)
{
    return stores() >= room ? -ENOSPC : swn_io_sys.fallocate(ctx, fd, mode, off, len);
}

static int build_of(const char *name, int *fd, float value)
{
    char path[700];
    *fd = make_file(name, value);
    snprintf(path, sizeof path, "%s/%s", top, name);
    return try_build(*fd, path, 0);
}

/* The cap allows it, but the disk is full: what nobody opens any more makes room, and nothing else does. */
static void stale_stores_leave_a_full_disk(void **state)
{
    (void)state;
    int gone, kept, next, last;
    char path[700];
    assert_int_equal(build_of("gone", &gone, 1), 0);
    assert_int_equal(build_of("kept", &kept, 2), 0);
    snprintf(path, sizeof path, "%s/gone", top);
    assert_int_equal(unlink(path), 0);
    room = 2;
    fault.io.fallocate = full_disk;
    assert_int_equal(build_of("next", &next, 3), 0);
    assert_int_equal(stores(), 2);
    assert_int_equal(found(gone), -ENOENT);
    assert_int_equal(found(kept), 0);
    assert_int_equal(found(next), 0);
    assert_int_equal(build_of("last", &last, 4), -ENOSPC);
    assert_int_equal(found(kept), 0);
    assert_int_equal(found(next), 0);
    close(gone);
    close(kept);
    close(next);
    close(last);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(built_and_found),
        TEST(changed_files_are_others),
        TEST(wrong_name),
        TEST(cap),
        TEST(builds_side_by_side_keep_to_the_cap),
        TEST(some_are_kept),
        TEST(nothing_beside_nothing),
        TEST(directories_of_others),
        TEST(two_at_once),
        TEST(any_operation_fails),
        TEST(no_room_anywhere),
        TEST(no_quota_anywhere),
        TEST(times_settle),
        TEST(mismatch_is_read_twice),
        TEST(same_in_all_but_bytes),
        TEST(one_of_many_tensors),
        TEST(zips_of_other_bytes),
        TEST(written_while_it_is_opened),
        TEST(stores_show_from_now_on),
        TEST(stale_stores_leave_a_full_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
