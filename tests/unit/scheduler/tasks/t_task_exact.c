/* The exact makespan against one that is found in another way: all states that can be reached in each unit of time,
 * whatever begins whenever. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>

#include "scheduler/tasks/exact.h"
#include "tests/unit/support/random.h"
#include "tests/unit/support/task_fixture.h"

#define PASSES 2
#define LAYERS 2
#define LOADED 6 /* of a block; less: units that its load still takes plus one; 0: absent; 7: gone */
#define GONE 7
#define BITS 24

/* Of both passes: next layer, units that it still computes, blocks. */
struct point {
    unsigned next[PASSES], left[PASSES], block[PASSES][LAYERS];
};

static uint32_t pack(const struct point *p)
{
    uint32_t bits = 0;

    for (int k = 0; k < PASSES; k++) {
        bits = bits << 12 | p->next[k] << 9 | p->left[k] << 6;
        bits |= p->block[k][0] << 3 | p->block[k][1];
    }
    return bits;
}

static struct point unpack(uint32_t bits)
{
    struct point p;

    for (int k = PASSES; k-- > 0; bits >>= 12) {
        p.next[k] = bits >> 9 & 7;
        p.left[k] = bits >> 6 & 7;
        p.block[k][0] = bits >> 3 & 7;
        p.block[k][1] = bits & 7;
    }
    return p;
}

/* The points that a unit of time begins with, each once, and those that the next one does. */
struct reached {
    uint32_t *points, count;
};

static struct reached now, then;
static uint8_t *is_next; /* is the point among `then`? */

static void reach(const struct point *p)
{
    uint32_t bits = pack(p);

    if (!is_next[bits])
        then.points[then.count++] = bits;
    is_next[bits] = 1;
}

/* Is the point within memory and workers? */
static int fits(const struct task_fixture *x, const struct point *p)
{
    uint64_t used = 0;
    unsigned busy = 0;

    for (int k = 0; k < PASSES; k++) {
        for (int l = 0; l < LAYERS; l++) {
            used += p->block[k][l] && p->block[k][l] != GONE ? x->layers[k][l].load_bytes : 0;
            busy += p->block[k][l] && p->block[k][l] < LOADED;
        }
        used += p->left[k] ? x->layers[k][p->next[k]].activation_bytes : 0;
        busy += p->left[k] != 0;
    }
    return used <= x->s.machine.memory_bytes && busy <= x->s.machine.workers;
}

static void tick(struct point p)
{
    for (int k = 0; k < PASSES; k++) {
        for (int l = 0; l < LAYERS; l++)
            if (p.block[k][l] && p.block[k][l] < LOADED && --p.block[k][l] == 1)
                p.block[k][l] = LOADED;
        if (p.left[k] && !--p.left[k])
            p.block[k][p.next[k]++] = GONE;
    }
    reach(&p);
}

/* Tasks from `task` on begin or do not. */
static void expand(const struct task_fixture *x, struct point p, unsigned task)
{
    unsigned k = task / (LAYERS + 1), l = task % (LAYERS + 1);

    if (!fits(x, &p))
        return;
    if (k == PASSES) {
        tick(p);
        return;
    }
    expand(x, p, task + 1);
    if (l < LAYERS && !p.block[k][l]) {
        p.block[k][l] = (unsigned)x->layers[k][l].load_bytes + 1;
        expand(x, p, task + 1);
    } else if (l == LAYERS && p.next[k] < LAYERS && !p.left[k] && p.block[k][p.next[k]] == LOADED) {
        p.left[k] = (unsigned)x->layers[k][p.next[k]].compute_ns;
        expand(x, p, task + 1);
    }
}

static uint64_t by_time(const struct task_fixture *x)
{
    memset(is_next, 0, 1u << BITS);
    now.points[0] = 0;
    now.count = 1;
    for (uint64_t t = 0; t < 40; t++) {
        struct reached other = now;

        then.count = 0;
        for (uint32_t i = 0; i < now.count; i++) {
            struct point p = unpack(now.points[i]);

            if (p.next[0] == LAYERS && p.next[1] == LAYERS)
                return t;
            expand(x, p, 0);
        }
        for (uint32_t i = 0; i < then.count; i++)
            is_next[then.points[i]] = 0;
        now = then;
        then = other;
    }
    return UINT64_MAX;
}

static void the_optimum_is_that_of_a_search_over_all_times(void **state)
{
    (void)state;
    now.points = malloc(sizeof *now.points << BITS); /* few of its pages are ever used */
    then.points = malloc(sizeof *then.points << BITS);
    is_next = calloc(1u << BITS, 1);
    assert_true(now.points && then.points && is_next);
    for (unsigned i = 0; i < rounds_of(12); i++) {
        struct task_fixture x;
        uint64_t most = 0, end;

        task_begin(&x, 1 + i % 3, 0);
        for (uint32_t p = 0; p < PASSES; p++) {
            task_add(&x, LAYERS);
            for (uint32_t l = 0; l < LAYERS; l++)
                x.layers[p][l] = (struct swn_task_layer){.load_bytes = 1 + rnd_below(4),
                                                         .compute_ns = 1 + rnd_below(4),
                                                         .activation_bytes = 1 + rnd_below(3)};
            end = swn_task_largest(&x.networks[p], 1);
            most = end > most ? end : most;
        }
        x.s.machine.memory_bytes = most + rnd_below(4);
        assert_int_equal(swn_task_exact(&x.s, 10000000, &end), 0);
        assert_int_equal(end, by_time(&x));
    }
    free(now.points);
    free(then.points);
    free(is_next);
}

static void what_cannot_be_said_is_not(void **state)
{
    struct task_fixture x;
    uint64_t end;

    (void)state;
    task_begin(&x, 1, 10);
    task_add(&x, 1);
    x.layers[0][0] = (struct swn_task_layer){.load_bytes = 8, .compute_ns = 1, .activation_bytes = 3};
    assert_int_equal(swn_task_exact(&x.s, 1000, &end), -ENOSPC);
    x.s.machine.memory_bytes = 11;
    assert_int_equal(swn_task_exact(&x.s, 2, &end), -EAGAIN);
    assert_int_equal(swn_task_exact(&x.s, 1000, &end), 0);
    assert_int_equal(end, 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_optimum_is_that_of_a_search_over_all_times),
        cmocka_unit_test(what_cannot_be_said_is_not),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
