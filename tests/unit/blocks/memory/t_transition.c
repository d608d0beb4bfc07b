/* Description: no store is lost that comes while what stands behind its address changes. Left out under
 * ThreadSanitizer, which knows no ordering by page protection: a store that faults, waits in the handler and is
 * repeated on another mapping of the same address is a race to it. */
/* wraps: sched_yield syscall */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "blocks/memory/transition.h"
#include "tests/unit/support/random.h"
#include "tests/unit/support/residency_fixture.h"

static struct {
    struct swn_range *range;
    _Atomic int stop;
    _Atomic uint64_t stores;
    uint64_t last[PAGES], lost;
} writer;

static void on_segv(int sig, siginfo_t *info, void *context)
{
    (void)context;
    if (!swn_residency_trap(&res, (uintptr_t)info->si_addr))
        signal(sig, SIG_DFL);
}

static void *write_counters(void *arg)
{
    (void)arg;
    uint64_t x = 42, n = 0;
    while (!atomic_load_explicit(&writer.stop, memory_order_relaxed)) {
        x = x * 6364136223846793005ULL + 1442695040888963407ULL;
        size_t page = (size_t)(x >> 33) % PAGES;
        volatile uint64_t *cell = (uint64_t *)(writer.range->addr + page * SWN_PAGE + 8 * page);
        writer.lost += *cell != writer.last[page];
        *cell = writer.last[page] = ++n;
        /* Bursts, so that a pending_write succeeds now and then. */
        if (n % 4096 == 0 && (x >> 60) < 8)
            usleep((useconds_t)(x >> 40) % 1500);
    }
    atomic_store(&writer.stores, n);
    return NULL;
}

static struct sigaction before; /* cmocka has one, too */

static void catch_faults(void)
{
    struct sigaction act = {.sa_sigaction = on_segv, .sa_flags = SA_SIGINFO};
    assert_int_equal(sigaction(SIGSEGV, &act, &before), 0);
}

static void no_store_is_lost(void **state)
{
    (void)state;
    struct swn_range *r = make(RESIDENT, 0);
    uint64_t done[4] = {0}, refused[4] = {0};
    memset(bytes_of(r), 0, SIZE);
    memset(&writer, 0, sizeof writer);
    writer.range = r;
    catch_faults();
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, write_counters, NULL), 0);
    for (int i = 0; i < 2000; i++) {
        int err = swn_residency_spill(&res, r);
        (err ? refused : done)[0]++;
        assert_int_equal(err ? -err : EBUSY, EBUSY);
        if (err)
            continue;
        for (int k = 0; k < 3; k++) {
            if (rnd() % 2) {
                fetch(r, 1 + (unsigned)rnd_below(3));
                struct swn_range *written = publish(r);
                assert_true(!written || written == r);
                (written ? refused : done)[1]++;
                reuse(r); /* and whatever could not be mapped */
            }
            if (rnd() % 3 == 0) {
                err = swn_residency_remap(&res, r);
                (err ? refused : done)[2]++;
                assert_int_equal(err ? -err : EBUSY, EBUSY);
            }
            if (rnd() % 2) {
                struct swn_range *written = unpublish(r);
                assert_true(!written || written == r);
                (written ? refused : done)[3]++;
                reuse(r);
            }
        }
        assert_int_equal(swn_residency_make_resident(&res, r, 0), 0);
        reuse(r);
        assert_null(swn_pool_first(pool));
    }
    atomic_store(&writer.stop, 1);
    pthread_join(thread, NULL);
    sigaction(SIGSEGV, &before, NULL);
    print_message("%llu stores; spilled %llu, refused %llu; published %llu, refused %llu; remapped %llu, refused %llu; "
                  "taken back %llu, refused %llu; %llu recalls\n",
                  (unsigned long long)writer.stores, (unsigned long long)done[0], (unsigned long long)refused[0],
                  (unsigned long long)done[1], (unsigned long long)refused[1], (unsigned long long)done[2],
                  (unsigned long long)refused[2], (unsigned long long)done[3], (unsigned long long)refused[3],
                  (unsigned long long)res.recalls);
    assert_int_equal(writer.lost, 0);
    for (size_t page = 0; page < PAGES; page++)
        assert_int_equal(*(uint64_t *)(r->addr + page * SWN_PAGE + 8 * page), writer.last[page]);
    assert_true(res.recalls > 0);
    assert_true(done[0] > 0 && done[1] > 0 && done[3] > 0);
    assert_int_equal(res.resident_bytes, r->size);
    swn_residency_free(&res, r, 0);
    assert_int_equal(spill->live_bytes, 0);
}

/* A range whose transition another thread has begun. That thread gets no processor while this one only yields. */
static struct {
    struct swn_range *range;
    int becomes;
    unsigned yields, sleeps;
} starving;

int __real_sched_yield(void);
int __wrap_sched_yield(void);
int __wrap_sched_yield(void)
{
    if (!starving.range)
        return __real_sched_yield();
    starving.yields++;
    return 0;
}

long __real_syscall(long number, ...);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    if (number == SYS_clock_nanosleep && starving.range && ++starving.sleeps == 3)
        atomic_store(&starving.range->state, starving.becomes);
    return __real_syscall(number, a, b, c, d, e, f);
}

/* As where the thread has a real-time priority, and the other one, which is in the middle of a step, none. */
static void who_waits_lets_others_run(void **state)
{
    (void)state;
    struct swn_range *r = make(RESIDENT, 0);
    atomic_store(&r->state, SWN_EVICT_COMMIT);
    starving.range = r;
    starving.becomes = SWN_RESIDENT;
    assert_int_equal(swn_residency_trap(&res, r->addr), 2);
    assert_int_equal(starving.sleeps, 3);
    starving.sleeps = 0;
    atomic_store(&r->state, SWN_EVICT_ABORTING);
    starving.becomes = SWN_EVICT_ABORTED;
    swn_transition_stop(r);
    assert_int_equal(starving.sleeps, 3);
    assert_in_range(starving.yields, 2, 100000); /* at first, as the other one mostly has a processor */
    memset(&starving, 0, sizeof starving);
    atomic_store(&r->state, SWN_RESIDENT);
    check(r, SWN_RESIDENT);
    swn_residency_free(&res, r, 0);
}

/* A store at one moment of a transition: another thread's, into each of the ranges in turn. */
static struct {
    unsigned char *at;
    _Atomic int go, began, done;
    unsigned countdown; /* mappings until then */
} intruder;

static void *intrude(void *arg)
{
    (void)arg;
    while (!atomic_load(&intruder.go))
        sched_yield();
    atomic_store(&intruder.began, 1);
    *(volatile unsigned char *)intruder.at = 0xCD;
    atomic_store(&intruder.done, 1);
    return NULL;
}

static void let_in(void)
{
    atomic_store(&intruder.go, 1);
    while (!atomic_load(&intruder.began))
        sched_yield();
    usleep(2000); /* it is in the handler now, if it is to wait */
}

static int intruded_mmap(void *ctx, void **addr, size_t len, int prot, int flags, int fd, uint64_t off)
{
    if (!intruder.countdown--) {
        let_in();
        assert_false(atomic_load(&intruder.done)); /* it waits for what comes next */
    }
    return swn_io_sys.mmap(ctx, addr, len, prot, flags, fd, off);
}

/* Between the last look and the new mapping of any part a store into any of them waits, and is not lost. */
static void stores_that_wait(void **state)
{
    (void)state;
    catch_faults();
    for (unsigned into = 0; into < NEIGHBOURS; into++)
        for (unsigned i = 0; i < 2 * 4; i++) {
            /* The first two leave together, then the last two, in one mapping, or in two if their extents lie apart;
             * whoever has left has new pages already. */
            unsigned apart = i / 4, when = i % 4, leaves = into < 2 ? into : into - 1;
            if (into == 2 || (apart ? leaves / 2 != when / 2 || leaves < when : leaves / 2 != when))
                continue;
            make_neighbours(0, (int)apart);
            struct swn_frame *f = frame_of_neighbours();
            struct swn_range *written;
            swn_residency_publish(&res, &f, 1, &written);
            memset(&intruder, 0, sizeof intruder);
            intruder.at = bytes_of(near[into].range) + 77;
            intruder.countdown = when;
            io.mmap = intruded_mmap;
            pthread_t thread;
            assert_int_equal(pthread_create(&thread, NULL, intrude, NULL), 0);
            assert_null(swn_residency_unpublish(&res, &f, 1));
            assert_int_equal(pthread_join(thread, NULL), 0);
            io.mmap = fault_mmap;
            reuse_frame(f);
            assert_int_equal(bytes_of(near[into].range)[77], 0xCD);
            assert_int_equal(scan(near[into].range).private_pages, 1);
            bytes_of(near[into].range)[77] = near[into].byte;
            check_neighbours();
            free_neighbours();
        }
    sigaction(SIGSEGV, &before, NULL);
}

/* A store between the first look and the last one sends its range back at once, and the thread that is at it sees. */
static void stores_that_recall(void **state)
{
    (void)state;
    catch_faults();
    struct swn_range *r = make(RESIDENT, 0);
    assert_int_equal(swn_residency_leave(&res, r), 0);
    assert_int_equal(state_of(r), SWN_EVICTING);
    memset(&intruder, 0, sizeof intruder);
    intruder.at = bytes_of(r) + 5;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, intrude, NULL), 0);
    atomic_store(&intruder.go, 1);
    assert_int_equal(pthread_join(thread, NULL), 0); /* it has not waited */
    shadow[5] = 0xCD;
    assert_int_equal(state_of(r), SWN_EVICT_ABORTED);
    assert_int_equal(swn_residency_left(&res, r, 0), -EBUSY);
    check(r, SWN_RESIDENT);
    swn_residency_free(&res, r, 0);
    sigaction(SIGSEGV, &before, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(stores_that_wait, residency_begin_huge, residency_end),
        cmocka_unit_test_setup_teardown(stores_that_recall, residency_begin, residency_end),
        cmocka_unit_test_setup_teardown(who_waits_lets_others_run, residency_begin, residency_end),
        cmocka_unit_test_setup_teardown(no_store_is_lost, residency_begin, residency_end),
    };
#ifdef __SANITIZE_THREAD__
    return 77;
#endif
    return cmocka_run_group_tests(tests, NULL, NULL);
}
