/* Slots never overlap, lose no byte of the buffer, and are refused where there is no room. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "scheduler/serve/slots.h"
#include "tests/unit/support/random.h"
#include "tests/unit/support/slowness.h"

#define KIB ((uint64_t)1024)

static struct swn_buffer *buffer;

static int open_buffer(void **state)
{
    (void)state;
    return swn_buffer_open(&buffer, 256 * KIB);
}

static int close_buffer(void **state)
{
    (void)state;
    swn_buffer_close(buffer);
    return 0;
}

static struct swn_buffer_use use(void)
{
    struct swn_buffer_use u;
    swn_buffer_use(buffer, &u);
    return u;
}

static void test_full_buffer_refuses_and_serves_again(void **state)
{
    struct swn_slot a = {0}, b = {0}, c = {0};

    (void)state;
    assert_int_equal(swn_slot_take(buffer, 200 * KIB, &a), 0);
    assert_int_equal(swn_slot_take(buffer, 100 * KIB, &b), -ENOSPC);
    assert_int_equal(swn_slot_take(buffer, 257 * KIB, &b), -EFBIG);
    assert_int_equal(swn_slot_take(buffer, UINT64_MAX, &b), -EFBIG);
    assert_int_equal(swn_slot_take(buffer, 56 * KIB, &b), 0);
    assert_int_equal(swn_slot_take(buffer, 0, &c), -ENOSPC); /* an empty one has an address, too */
    assert_int_equal(use().used_bytes, 256 * KIB);
    assert_int_equal(use().refused, 2);
    swn_slot_give(buffer, &a);
    swn_slot_give(buffer, &a);
    assert_int_equal(swn_slot_take(buffer, 0, &c), 0);
    assert_int_equal(use().slots, 2);
    swn_slot_give(buffer, &b);
    swn_slot_give(buffer, &c);
    assert_int_equal(use().used_bytes, 0);
    assert_int_equal(use().peak_bytes, 256 * KIB);
}

static void test_requests_leave_what_is_kept_for_answers(void **state)
{
    struct swn_slot a = {0}, b = {0}, c = {0};

    (void)state;
    swn_buffer_keep(buffer, 64 * KIB);
    assert_int_equal(swn_slot_take_for_request(buffer, 256 * KIB, &a), 0); /* alone it may have all of it */
    swn_slot_give(buffer, &a);
    assert_int_equal(swn_slot_take_for_request(buffer, 100 * KIB, &a), 0);
    assert_int_equal(swn_slot_take_for_request(buffer, 93 * KIB, &b), -ENOSPC);
    assert_int_equal(swn_slot_take_for_request(buffer, 92 * KIB, &b), 0);
    assert_int_equal(swn_slot_take_for_request(buffer, 1, &c), -ENOSPC);
    assert_int_equal(swn_slot_resize(buffer, &b, 93 * KIB), -ENOSPC);
    assert_int_equal(use().refused, 3);
    assert_int_equal(swn_slot_take(buffer, 64 * KIB, &c), 0);
    assert_int_equal(swn_slot_resize(buffer, &b, 20 * KIB), 0);
    assert_int_equal(swn_slot_resize(buffer, &b, 92 * KIB), 0);
    swn_slot_give(buffer, &a);
    swn_slot_give(buffer, &c);
    assert_int_equal(swn_slot_resize(buffer, &b, 150 * KIB), 0); /* the only one again */
    swn_slot_give(buffer, &b);
    swn_buffer_keep(buffer, UINT64_MAX);
    assert_int_equal(swn_slot_take_for_request(buffer, 1, &a), 0);
    assert_int_equal(swn_slot_take_for_request(buffer, 1, &b), -ENOSPC);
    swn_slot_give(buffer, &a);
    assert_int_equal(use().used_bytes, 0);
}

static void test_neighbours_join_in_any_order(void **state)
{
    static const int orders[][4] = {{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 3, 0, 2}, {0, 2, 1, 3}, {2, 0, 3, 1}};
    struct swn_slot s[4] = {0}, whole = {0};

    (void)state;
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        for (int k = 0; k < 4; k++)
            assert_int_equal(swn_slot_take(buffer, 64 * KIB, &s[k]), 0);
        for (int k = 0; k < 4; k++)
            swn_slot_give(buffer, &s[orders[i][k]]);
        assert_int_equal(swn_slot_take(buffer, 256 * KIB, &whole), 0);
        swn_slot_give(buffer, &whole);
    }
}

static void test_growing_keeps_the_bytes(void **state)
{
    struct swn_slot a = {0}, b = {0};
    uint64_t before;

    (void)state;
    assert_int_equal(swn_slot_take(buffer, 1 * KIB, &a), 0);
    memset(swn_buffer_at(buffer, a.offset), 'x', 1 * KIB);
    before = a.offset;
    assert_int_equal(swn_slot_resize(buffer, &a, 4 * KIB), 0); /* in place */
    assert_int_equal(a.offset, before);
    assert_int_equal(swn_slot_take(buffer, 1 * KIB, &b), 0);
    assert_int_equal(swn_slot_resize(buffer, &a, 100 * KIB), 0); /* elsewhere */
    assert_true(a.offset > b.offset);
    for (uint64_t i = 0; i < 1 * KIB; i++)
        assert_int_equal(((char *)swn_buffer_at(buffer, a.offset))[i], 'x');
    assert_int_equal(swn_slot_resize(buffer, &a, 255 * KIB), -ENOSPC);
    assert_int_equal(swn_slot_resize(buffer, &a, 300 * KIB), -EFBIG);
    assert_int_equal(a.bytes, 100 * KIB);
    assert_int_equal(swn_slot_resize(buffer, &a, 2 * KIB), 0);
    assert_int_equal(use().used_bytes, 3 * KIB);
    swn_slot_give(buffer, &a);
    swn_slot_give(buffer, &b);
    assert_int_equal(use().used_bytes, 0);
}

#define SLOTS 64

/* Each slot is full of its own number: one that overlapped would show. */
static void write_to(const struct swn_slot *s, uint64_t bytes, int number)
{
    memset(swn_buffer_at(buffer, s->offset), number, bytes);
}

static void is_written(const struct swn_slot *s, uint64_t bytes, int number)
{
    const unsigned char *at = swn_buffer_at(buffer, s->offset);
    for (uint64_t i = 0; i < bytes; i++)
        if (at[i] != number)
            fail_msg("slot %d has another's byte", number);
}

static void test_random_takes_never_overlap(void **state)
{
    struct swn_slot slots[SLOTS] = {0};
    uint64_t bytes[SLOTS] = {0}, chance = 1;

    (void)state;
    for (int round = 0; round < 20000; round++) {
        int i = (int)(next_random(&chance) % SLOTS);
        uint64_t want = next_random(&chance) % (12 * KIB);
        if (!slots[i].span) {
            bytes[i] = swn_slot_take(buffer, want, &slots[i]) ? 0 : want;
        } else if (next_random(&chance) % 2) {
            is_written(&slots[i], bytes[i], i);
            if (swn_slot_resize(buffer, &slots[i], want) == 0) {
                is_written(&slots[i], want < bytes[i] ? want : bytes[i], i);
                bytes[i] = want;
            }
        } else {
            is_written(&slots[i], bytes[i], i);
            swn_slot_give(buffer, &slots[i]);
            bytes[i] = 0;
        }
        if (slots[i].span) {
            assert_true(slots[i].bytes >= bytes[i]);
            assert_int_equal(slots[i].offset % SWN_SLOT_ALIGN, 0);
            write_to(&slots[i], bytes[i], i);
        }
    }
    for (int i = 0; i < SLOTS; i++)
        swn_slot_give(buffer, &slots[i]);
    assert_int_equal(use().used_bytes, 0);
    assert_int_equal(swn_slot_take(buffer, 256 * KIB, &slots[0]), 0);
    swn_slot_give(buffer, &slots[0]);
}

static void *take_and_give(void *arg)
{
    uint64_t chance = (uintptr_t)arg;

    for (int round = 0; round < 20000; round++) {
        struct swn_slot s = {0};
        if (swn_slot_take(buffer, next_random(&chance) % (64 * KIB), &s) == 0)
            *(char *)swn_buffer_at(buffer, s.offset) = 1;
        swn_slot_give(buffer, &s);
    }
    return NULL;
}

static void test_threads_take_and_give_at_once(void **state)
{
    pthread_t threads[4];

    (void)state;
    for (uintptr_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_and_give, (void *)(i + 1)), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(use().slots, 0);
    assert_int_equal(use().used_bytes, 0);
}

/* A connection may have a slot each. A walk along all of them takes eight times as long as is allowed. */
#define MANY 80000
#define MANY_MS 1500

static void test_many_slots_cost_little_each(void **state)
{
    struct swn_slot *small = calloc(MANY, sizeof *small), large = {0};
    double begin, most = here_ms(MANY_MS);

    (void)state;
    assert_non_null(small);
    assert_int_equal(swn_buffer_open(&buffer, (2 * MANY + 4) * SWN_SLOT_ALIGN), 0);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(swn_slot_take(buffer, SWN_SLOT_ALIGN, &small[i]), 0);
    for (int i = 0; i < MANY; i += 2)
        swn_slot_give(buffer, &small[i]);
    begin = cpu_ms();
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(swn_slot_take(buffer, 2 * SWN_SLOT_ALIGN, &large), 0);
        swn_slot_give(buffer, &large);
        assert_true(cpu_ms() - begin < most);
    }
    assert_int_equal(swn_slot_take(buffer, SWN_SLOT_ALIGN, &small[0]), 0);
    assert_int_equal(small[0].offset, 0); /* still the first that fits */
    for (int i = 0; i < MANY; i++)
        swn_slot_give(buffer, &small[i]);
    assert_int_equal(swn_slot_take(buffer, (2 * MANY + 4) * SWN_SLOT_ALIGN, &large), 0);
    swn_slot_give(buffer, &large);
    swn_buffer_close(buffer);
    free(small);
}

/* ---- a copy stands still ---- */

static sem_t asked, answered;
static char *guarded;
static int was_answered;

/* The copy has come to the guarded page: until this returns it does not go on. */
static void on_fault(int sig)
{
    struct timespec until;

    (void)sig;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 30;
    sem_post(&asked);
    was_answered = sem_timedwait(&answered, &until) == 0;
    mprotect(guarded, 4096, PROT_READ | PROT_WRITE);
}

static void *take_meanwhile(void *arg)
{
    struct swn_slot s = {0};

    (void)arg;
    sem_wait(&asked);
    swn_slot_take(buffer, 1, &s);
    swn_slot_give(buffer, &s);
    sem_post(&answered);
    return NULL;
}

static void test_copy_holds_nobody_up(void **state)
{
    struct sigaction act = {.sa_handler = on_fault}, before;
    struct swn_slot a = {0}, b = {0};
    pthread_t other;

    (void)state;
    sem_init(&asked, 0, 0);
    sem_init(&answered, 0, 0);
    assert_int_equal(swn_slot_take(buffer, 8 * KIB, &a), 0);
    assert_int_equal(swn_slot_take(buffer, 1 * KIB, &b), 0);
    memset(swn_buffer_at(buffer, a.offset), 'y', 8 * KIB);
    guarded = swn_buffer_at(buffer, a.offset);
    assert_int_equal(sigaction(SIGSEGV, &act, &before), 0);
    assert_int_equal(pthread_create(&other, NULL, take_meanwhile, NULL), 0);
    assert_int_equal(mprotect(guarded, 4096, PROT_NONE), 0);
    assert_int_equal(swn_slot_resize(buffer, &a, 100 * KIB), 0);
    pthread_join(other, NULL);
    sigaction(SIGSEGV, &before, NULL);
    assert_true(was_answered);
    is_written(&a, 8 * KIB, 'y');
    swn_slot_give(buffer, &a);
    swn_slot_give(buffer, &b);
}

static void test_size_of_the_buffer_is_sealed(void **state)
{
    (void)state;
    assert_int_equal(ftruncate(swn_buffer_fd(buffer), 4096), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(ftruncate(swn_buffer_fd(buffer), 512 * 1024), -1);
    assert_int_equal(errno, EPERM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_full_buffer_refuses_and_serves_again, open_buffer, close_buffer),
        cmocka_unit_test_setup_teardown(test_requests_leave_what_is_kept_for_answers, open_buffer, close_buffer),
        cmocka_unit_test_setup_teardown(test_neighbours_join_in_any_order, open_buffer, close_buffer),
        cmocka_unit_test_setup_teardown(test_growing_keeps_the_bytes, open_buffer, close_buffer),
        cmocka_unit_test_setup_teardown(test_random_takes_never_overlap, open_buffer, close_buffer),
        cmocka_unit_test_setup_teardown(test_threads_take_and_give_at_once, open_buffer, close_buffer),
        cmocka_unit_test(test_many_slots_cost_little_each),
        cmocka_unit_test_setup_teardown(test_copy_holds_nobody_up, open_buffer, close_buffer),
        cmocka_unit_test_setup_teardown(test_size_of_the_buffer_is_sealed, open_buffer, close_buffer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
