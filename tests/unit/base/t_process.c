/* Description: which process it is, whether it lives, and what it has in memory. */
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
#include <linux/magic.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process.h"

#define MIB ((uint64_t)1 << 20)

static void *stay(void *unused)
{
    pause();
    return unused;
}

/* What cannot be seen right now lives; so does one whose first thread alone has ended. */
static void not_dead(void **state)
{
    struct rlimit before, none;
    pthread_t thread;
    uint64_t start;
    siginfo_t info;
    (void)state;
    pid_t child = fork();
    if (!child) {
        if (!pthread_create(&thread, NULL, stay, NULL))
            pthread_exit(NULL);
        _exit(1);
    }
    assert_int_equal(swn_process_start(child, &start), 0);
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)child);
    for (int i = 0; i < 5000 && !strstr(text, ") Z "); i++) {
        FILE *f = fopen(path, "r");
        assert_non_null(f);
        assert_non_null(fgets(text, sizeof text, f));
        fclose(f);
        usleep(1000);
    }
    assert_non_null(strstr(text, ") Z "));
    assert_int_equal(swn_process_lives(child, start), 1);
    assert_int_equal(swn_process_lives(child, start + 1), 0);
    getrlimit(RLIMIT_NOFILE, &before);
    none = before;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    int lives = swn_process_lives(child, start);
    setrlimit(RLIMIT_NOFILE, &before);
    assert_int_equal(lives, -EMFILE);
    kill(child, SIGKILL);
    assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
    assert_int_equal(swn_process_lives(child, start), 0); /* a zombie as a whole */
    waitpid(child, NULL, 0);
    assert_int_equal(swn_process_lives(child, start), 0);
}

/* Anonymous memory and pages that are shared. */
static void what_is_resident(void **state)
{
    uint64_t before, after, own, anonymous;
    (void)state;
    assert_int_equal(swn_process_own_memory(getpid(), &own), 0);
    assert_int_equal(swn_process_anonymous(getpid(), &anonymous), 0);
    assert_int_equal(swn_process_resident(1 << 22, &before), -ENOENT);
    assert_int_equal(swn_process_resident(getpid(), &before), 0);
    assert_true(before > MIB / 4);
    for (int shared = 0; shared < 2; shared++) {
        void *p =
            mmap(NULL, 32 * MIB, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | (shared ? MAP_SHARED : MAP_PRIVATE), -1, 0);
        assert_ptr_not_equal(p, MAP_FAILED);
        memset(p, 1, 32 * MIB);
        assert_int_equal(swn_process_resident(getpid(), &after), 0);
        assert_true(after > before + 30 * MIB);
        assert_int_equal(swn_process_own_memory(getpid(), &after), 0);
        assert_true(after > own + 30 * MIB);
        assert_int_equal(swn_process_anonymous(0, &after), 0);
#ifdef __SANITIZE_THREAD__ /* it keeps anonymous memory beside all that is written */
        assert_true(shared || after > anonymous + 30 * MIB);
#else
        assert_true(shared ? after < anonymous + 8 * MIB : after > anonymous + 30 * MIB);
#endif
        munmap(p, 32 * MIB);
    }
    assert_int_equal(swn_process_anonymous(1 << 22, &after), -ENOENT);
    assert_int_equal(swn_process_own_memory(1 << 22, &after), -ENOENT);
    uid_t user;
    assert_int_equal(swn_process_user(1 << 22, &user), -ENOENT);
    assert_true(swn_process_user(getpid(), &user) == 0 && user == geteuid());
    char path[] = "/tmp/t_process.XXXXXX";
    struct statfs kind;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    unlink(path);
    assert_int_equal(ftruncate(fd, 32 * MIB), 0);
    assert_int_equal(fstatfs(fd, &kind), 0);
    if (kind.f_type == TMPFS_MAGIC) { /* which is memory */
        close(fd);
        return;
    }
    void *file = mmap(NULL, 32 * MIB, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
    close(fd);
    assert_int_equal(swn_process_own_memory(getpid(), &after), 0);
    assert_true(file != MAP_FAILED && after < own + 8 * MIB);
    munmap(file, 32 * MIB);
}

static void *wait_for_end(void *gate)
{
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return NULL;
}

/* Whoever starts thousands of threads does not keep the caller busy. */
static void look_at_threads_is_bounded(void **state)
{
    (void)state;
    enum { MANY = SWN_THREADS_LOOKED_AT + 16 };
    static pthread_t thread[MANY];
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    pthread_attr_t small;
    int made = 0;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    pthread_mutex_lock(&gate);
    while (made < MANY && !pthread_create(&thread[made], &small, wait_for_end, &gate))
        made++;
    int named = made ? pthread_setname_np(thread[0], "first") : -1;
    int first = swn_process_has_thread(getpid(), "first"), none = swn_process_has_thread(getpid(), "none");
    pthread_mutex_unlock(&gate);
    for (int i = 0; i < made; i++)
        pthread_join(thread[i], NULL);
    if (made < MANY)
        skip(); /* a limit of processes */
    assert_int_equal(named, 0);
    assert_int_equal(first, 1);
    assert_int_equal(none, -E2BIG);
}

/* Of two children the one that has called exec; a list that is full ends. */
static void programs_are_children_that_called_exec(void **state)
{
    pid_t forked = fork(), started, list[2] = {0};
    int report[2];
    char byte;
    (void)state;
    if (!forked) {
        pause();
        _exit(0);
    }
    assert_int_equal(pipe2(report, O_CLOEXEC), 0);
    started = fork();
    if (!started) {
        execlp("sleep", "sleep", "60", (char *)NULL);
        _exit(1);
    }
    close(report[1]);
    assert_int_equal(read(report[0], &byte, 1), 0); /* closed by exec */
    close(report[0]);
    int n = swn_process_programs(getpid(), list, 2), none = swn_process_programs(getpid(), list, 0);
    for (pid_t *child = (pid_t[]){forked, started, 0}; *child; child++) {
        kill(*child, SIGKILL);
        waitpid(*child, NULL, 0);
    }
    if (access("/proc/thread-self/children", F_OK)) {
        print_message("skipped: a kernel without /proc/PID/task/PID/children\n");
        skip();
    }
    assert_int_equal(n, 1);
    assert_int_equal(list[0], started);
    assert_int_equal(none, 0);
    assert_int_equal(swn_process_programs(getpid(), list, 2), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(not_dead),
        cmocka_unit_test(what_is_resident),
        cmocka_unit_test(look_at_threads_is_bounded),
        cmocka_unit_test(programs_are_children_that_called_exec),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
