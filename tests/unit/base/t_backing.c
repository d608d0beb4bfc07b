/* Description: what overlays say of files: where they lie, on overlays over disk and memory, and on those that know no
 * blocks; and which they are, whenever they are mounted. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "blocks/checkpoint/checkpoint.h"
#include "base/backing.h"
#include "base/errmsg.h"

/* Of a child: 0, SKIP, or the line that is wrong. */
enum { FIRST_LINE = __LINE__, SKIP = 255 };
#define WANT(what)                                                                                                     \
    do {                                                                                                               \
        if (!(what))                                                                                                   \
            _exit(__LINE__ - FIRST_LINE);                                                                              \
    } while (0)

static char disk[64];

static void cannot(const char *what)
{
    printf("[   SKIP   ] %s: %s\n", what, strerror(errno));
    fflush(stdout);
    _exit(SKIP);
}

/* A file of two pages that is on its disk. */
static int file_in(const char *dir, const char *name)
{
    char path[256], page[4096];
    memset(page, 'x', sizeof page);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || pwrite(fd, page, sizeof page, 0) != 4096 || pwrite(fd, page, sizeof page, 4096) != 4096 || fsync(fd))
        cannot(path);
    return fd;
}

static int lies_in_memory(const char *dir, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_RDONLY);
    int in_memory = fd < 0 ? -errno : swn_file_in_memory(&swn_io_sys, fd);
    close(fd);
    return in_memory;
}

/* An overlay at ./both over ./lower and what is mounted at ./top. */
static void overlay(void)
{
    if (mkdir("lower", 0700) == 0)
        close(file_in("lower", "old"));
    mkdir("top/upper", 0700);
    mkdir("top/work", 0700);
    mkdir("both", 0700);
    if (mount("swapnet-test", "both", "overlay", 0, "lowerdir=lower,upperdir=top/upper,workdir=top/work"))
        cannot("an overlay cannot be mounted here");
}

static void begin(void)
{
    if (chdir(disk) || unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
        cannot("no mount namespace to be had");
    mkdir("top", 0700);
}

static void over_memory(void)
{
    char why[SWN_ERRMSG] = "";
    struct swn_identity id;
    struct swn_checkpoint *c;
    begin();
    if (mount("swapnet-test", "top", "tmpfs", 0, "size=8m"))
        cannot("tmpfs cannot be mounted here");
    WANT(swn_is_memory_backed(&swn_io_sys, "top") == 1);
    overlay();
    WANT(swn_is_memory_backed(&swn_io_sys, "both") == 1);
    WANT(lies_in_memory("both", "old") == 0);
    close(file_in("both", "new"));
    WANT(lies_in_memory("both", "new") == 1);
    close(file_in("both", "old")); /* from then on it is above */
    WANT(lies_in_memory("both", "old") == 1);
    /* As in a container, or on a board that began in an initramfs: the layer has no name here. */
    WANT(umount2("top", MNT_DETACH) == 0);
    WANT(swn_is_memory_backed(&swn_io_sys, "both") == 1);
    WANT(lies_in_memory("both", "new") == 1);
    int fd = open("both/new", O_RDONLY);
    WANT(swn_identity_settle(&swn_io_sys, fd, 3000, &id) == -ENOTSUP);
    WANT(swn_checkpoint_open_settled(&c, &swn_io_sys, fd, "both/new", 3000, why) == -ENOTSUP);
    WANT(strstr(why, "lies in memory"));
}

static void over_disk(void)
{
    begin();
    overlay();
    WANT(swn_is_memory_backed(&swn_io_sys, "both") == 0);
    WANT(lies_in_memory("both", "old") == 0);
    close(file_in("both", "new"));
    WANT(lies_in_memory("both", "new") == 0);
    WANT(swn_is_memory_backed(&swn_io_sys, "none") == 0);
}

/* ioctl(FS_IOC_FIEMAP) is unknown from now on, as to file systems that have none. */
static void no_blocks(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)FS_IOC_FIEMAP, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EOPNOTSUPP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {.len = sizeof code / sizeof *code, .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
        cannot("no filter of system calls to be had");
}

static void over_disk_without_blocks(void)
{
    begin();
    overlay();
    no_blocks();
    WANT(swn_is_memory_backed(&swn_io_sys, "both") == 0);
    WANT(lies_in_memory("both", "old") == 0);
    int fd = file_in("both", "new");
    WANT(lies_in_memory("both", "new") == 0);
    int unwritten = 0; /* not on the disk yet: it may be of either kind */
    /* The kernel may just be writing all there is. What it has written keeps its block until it is cut off. */
    for (int i = 0; i < 100 && !unwritten; i++) {
        WANT(ftruncate(fd, 0) == 0 && pwrite(fd, "y", 1, 0) == 1);
        unwritten = lies_in_memory("both", "new");
    }
    WANT(unwritten == 1);
    WANT(ftruncate(fd, 0) == 0 && lies_in_memory("both", "new") == 0);
}

static struct swn_identity identity_of(const char *path)
{
    struct swn_identity id;
    int fd = open(path, O_RDONLY);
    WANT(fd >= 0 && swn_identity_stat(&swn_io_sys, fd, &id) == 0);
    close(fd);
    return id;
}

/* The store that was built of a file in an image is found in the next container. */
static void mounted_again(void)
{
    struct stat first, again;
    begin();
    overlay();
    struct swn_identity id = identity_of("both/old");
    WANT(stat("both/old", &first) == 0 && umount("both") == 0);
    mkdir("other", 0700);
    if (mount("swapnet-test", "other", "tmpfs", 0, "size=8m")) /* takes the number */
        cannot("tmpfs cannot be mounted here");
    overlay();
    struct swn_identity now = identity_of("both/old");
    WANT(stat("both/old", &again) == 0 && again.st_dev != first.st_dev);
    WANT(swn_identity_same_file(&id, &now));
    close(file_in("both", "old")); /* copied up */
    now = identity_of("both/old");
    WANT(!swn_identity_same_file(&id, &now));
    id = identity_of("other");
    WANT(stat("other", &first) == 0 && id.dev == first.st_dev);
}

static void in_child(void (*body)(void))
{
    strcpy(disk, "/var/tmp/t_backing-XXXXXX");
    assert_non_null(mkdtemp(disk));
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        alarm(60);
        body();
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", disk); /* what was mounted there is gone with its namespace */
    assert_int_equal(system(command), 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == SKIP)
        skip();
    if (status)
        fail_msg("line %d is wrong (status %x)", WEXITSTATUS(status) + FIRST_LINE, (unsigned)status);
}

static void test_over_memory(void **state)
{
    (void)state;
    in_child(over_memory);
}

static void test_over_disk(void **state)
{
    (void)state;
    in_child(over_disk);
}

static void test_without_blocks(void **state)
{
    (void)state;
    in_child(over_disk_without_blocks);
}

static void test_mounted_again(void **state)
{
    (void)state;
    in_child(mounted_again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_over_memory),
        cmocka_unit_test(test_over_disk),
        cmocka_unit_test(test_without_blocks),
        cmocka_unit_test(test_mounted_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
