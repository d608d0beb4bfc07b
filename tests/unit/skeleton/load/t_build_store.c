/* Description: a store that is made because its checkpoint is read: only of what does not fit, never with the
 * program's own description of the file, one at a time, and a signal ends the wait for it, whenever it comes.
 * What is read of the file all the same is asked for in each load. */
#define _GNU_SOURCE
#include "tests/unit/support/engine_fixture.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>

#include <cmocka.h>

#include "skeleton/load/load.h"

#define WEIGHTS 12
#define WEIGHT_BYTES MIB
#define POSITION 77 /* of the program's descriptor, by which a copy of it is known */

static int fd[2];
static uint64_t data_off;
static _Atomic unsigned syncs, syncs_of_the_programs, builders, most_builders;
static _Atomic int raise_now;
static struct swn_io io;

static int noted_fsync(void *ctx, int file)
{
    atomic_fetch_add(&syncs, 1);
    atomic_fetch_add(&syncs_of_the_programs, lseek(file, 0, SEEK_CUR) == POSITION);
    unsigned now = atomic_fetch_add(&builders, 1) + 1, most = atomic_load(&most_builders);
    while (now > most && !atomic_compare_exchange_weak(&most_builders, &most, now))
        ;
    usleep(50000);
    atomic_fetch_sub(&builders, 1);
    return swn_io_sys.fsync(ctx, file);
}

static unsigned asked;

static int counted_fadvise(void *ctx, int file, uint64_t off, uint64_t len, int advice)
{
    asked += advice == POSIX_FADV_WILLNEED;
    return swn_io_sys.fadvise(ctx, file, off, len, advice);
}

static int signalling_fstat(void *ctx, int file, struct stat *st)
{
    if (atomic_exchange(&raise_now, 0))
        raise(SIGUSR1);
    return swn_io_sys.fstat(ctx, file, st);
}

static void name_in_a_row(char *name, unsigned i)
{
    sprintf(name, "layer%02u.weight", i);
}

static void begin(size_t budget)
{
    io = swn_io_sys;
    io.fsync = noted_fsync;
    io.fstat = signalling_fstat;
    io.fadvise = counted_fadvise;
    CHECK(engine_begin(budget, SWN_CONFIG_AUTO, &io) == 0);
    for (int i = 0; i < 2; i++) {
        fd[i] = weights_file(WEIGHTS, WEIGHT_BYTES, name_in_a_row, &data_off);
        CHECK(lseek(fd[i], POSITION, SEEK_SET) == POSITION);
    }
    usleep(100000); /* times that are about to change are waited for */
}

static ssize_t load(int file, unsigned i)
{
    int strict;
    void *word = swn_engine_alloc(WEIGHT_BYTES, &strict);
    CHECK(word);
    return swn_load_read(file, word, WEIGHT_BYTES, (off_t)(data_off + i * WEIGHT_BYTES));
}

static void fits(void *none)
{
    (void)none;
    begin(64 * MIB);
    CHECK(load(fd[0], 0) == -1 && !syncs);
}

static void does_not_fit(void *none)
{
    (void)none;
    begin(8 * MIB);
    CHECK(load(fd[0], 0) == (ssize_t)WEIGHT_BYTES && syncs && !syncs_of_the_programs);
}

static void *load_the_other(void *none)
{
    CHECK(load(fd[1], 0) == (ssize_t)WEIGHT_BYTES);
    return none;
}

static void two_at_once(void *none)
{
    pthread_t thread;
    begin(8 * MIB);
    CHECK(!pthread_create(&thread, NULL, load_the_other, NULL));
    CHECK(load(fd[0], 0) == (ssize_t)WEIGHT_BYTES && !pthread_join(thread, none));
    CHECK(syncs >= 2 && most_builders == 1);
}

static volatile sig_atomic_t handled;

static void on_signal(int number)
{
    (void)number;
    handled++;
}

/* It comes when the file is looked at, before anybody waits. */
static void signalled(void *none)
{
    (void)none;
    sigset_t blocked;
    struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &act, NULL);
    begin(8 * MIB);
    atomic_store(&raise_now, 1);
    CHECK(load(fd[0], 0) == -1 && handled == 1);
    CHECK(!pthread_sigmask(SIG_SETMASK, NULL, &blocked) && !sigismember(&blocked, SIGUSR1));
    CHECK(load(fd[0], 1) == (ssize_t)WEIGHT_BYTES && handled == 1);
}

/* The parts of the file that are read all the same are requested at the begin of each load. */
static void loaded_again(void *none)
{
    (void)none;
    begin(8 * MIB);
    CHECK(load(fd[0], 0) == (ssize_t)WEIGHT_BYTES && asked >= WEIGHTS);
    asked = 0;
    CHECK(load(fd[0], 1) == (ssize_t)WEIGHT_BYTES && !asked);
    CHECK(load(fd[0], 0) == (ssize_t)WEIGHT_BYTES && asked == WEIGHTS);
}

/* What a read by such a descriptor gives is EBADF, whatever is known of the file. */
static void unreadable(void *none)
{
    (void)none;
    char self[64];
    begin(8 * MIB);
    CHECK(load(fd[0], 0) == (ssize_t)WEIGHT_BYTES);
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd[0]);
    int write_only = open(self, O_WRONLY), none_at_all = open(self, O_PATH);
    CHECK(write_only >= 0 && load(write_only, 1) == -1);
    CHECK(none_at_all >= 0 && load(none_at_all, 1) == -1);
    CHECK(load(fd[0], 1) == (ssize_t)WEIGHT_BYTES);
}

/* The file's name is hostile: one that a terminal would obey, or that looks like a message of swapnet. */
static void named_by_others(void *none)
{
    char self[64], path[400], spoilt[500], said[8192] = "";
    FILE *err = tmpfile();
    (void)none;
    begin(8 * MIB);
    swn_engine_one.config.verbose = 1;
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd[0]);
    ssize_t n = readlink(self, path, sizeof path - 1);
    CHECK(n > 0 && err);
    path[n] = 0;
    snprintf(spoilt, sizeof spoilt, "%s\33[2J\nswapnet: off", path);
    CHECK(rename(path, spoilt) == 0);
    usleep(100000);
    int before = dup(STDERR_FILENO);
    CHECK(!redirect_stderr(fileno(err)));
    CHECK(load(fd[0], 0) == (ssize_t)WEIGHT_BYTES);
    CHECK(!redirect_stderr(before));
    CHECK(pread(fileno(err), said, sizeof said - 1, 0) > 0 && strstr(said, "?[2J?swapnet: off"));
    CHECK(!strchr(said, 27) && !strstr(said, "\nswapnet: off"));
}

static void alone(void (*test)(void *))
{
    assert_int_equal(run_alone(test, NULL, 60), 0);
}

static void only_what_does_not_fit(void **state)
{
    (void)state;
    alone(fits);
    alone(does_not_fit);
}

static void one_at_a_time(void **state)
{
    (void)state;
    alone(two_at_once);
}

static void a_signal_before_the_wait(void **state)
{
    (void)state;
    alone(signalled);
}

static void heads_come_together(void **state)
{
    (void)state;
    alone(loaded_again);
}

static void not_for_reading(void **state)
{
    (void)state;
    alone(unreadable);
}

static void one_line_each(void **state)
{
    (void)state;
    alone(named_by_others);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_does_not_fit),   cmocka_unit_test(one_at_a_time),
        cmocka_unit_test(a_signal_before_the_wait), cmocka_unit_test(heads_come_together),
        cmocka_unit_test(not_for_reading),          cmocka_unit_test(one_line_each)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
