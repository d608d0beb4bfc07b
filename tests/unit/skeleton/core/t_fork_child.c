/* Description: a forked child has something mapped at every address of tensors, so that what it maps itself lies
 * elsewhere, and stays. */
#define _GNU_SOURCE
#include "tests/unit/support/engine_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "skeleton/engine/engine.h"

#define WEIGHTS 12u
#define BYTES (4 * MIB + 3 * SWN_PAGE) /* no whole number of granules */
#define BUDGET (24 * MIB)

static struct swn_engine *const e = &swn_engine_one;
static struct tensor weights[WEIGHTS];

/* Weights of which some are in frames, at their addresses: one of them. */
static struct tensor *begin(void)
{
    CHECK(engine_begin(BUDGET, SWN_CONFIG_AUTO, NULL) == 0);
    for (unsigned i = 0; i < WEIGHTS; i++)
        CHECK(tensor_make(&weights[i], BYTES, i + 1));
    for (unsigned i = 0; i < 2 * WEIGHTS; i++)
        op_read(&weights[i % WEIGHTS]);
    engine_reads_arrive();
    for (unsigned i = 0; i < WEIGHTS; i++)
        if (tensor_mapped(&weights[i]))
            return &weights[i];
    CHECK(0 && "a weight is in frames");
}

/* Whether nothing is mapped at some address that tensors have had. */
static int has_hole(void)
{
    uintptr_t at = swn_arena_lo(e->arena), end = at + swn_arena_used(e->arena);
    FILE *f = fopen("/proc/self/maps", "re");
    char line[4500];
    CHECK(f);
    while (fgets(line, sizeof line, f)) {
        char *rest;
        uintptr_t from = strtoull(line, &rest, 16), to = strtoull(rest + 1, NULL, 16);
        if (from <= at && to > at)
            at = to;
    }
    fclose(f);
    return at < end;
}

static void child_has_no_hole(void)
{
    CHECK(!has_hole());
    swn_engine_prefork();
    pid_t pid = fork();
    if (!pid) {
        swn_engine_postfork_child();
        CHECK(!has_hole());
        _exit(0);
    }
    swn_engine_postfork_parent();
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid && !status);
}

static void weights_in_frames(void *arg)
{
    (void)arg;
    CHECK(begin());
    child_has_no_hole();
}

/* The program lets go of a model, and forks before it makes anything else. */
static void freed_weights(void *arg)
{
    (void)arg;
    begin();
    for (unsigned i = 0; i < WEIGHTS; i++)
        tensor_free(&weights[i]);
    child_has_no_hole();
    engine_is_empty();
}

static void written_weight(void *arg)
{
    static const enum swn_use use = SWN_USE_WRITE;
    struct tensor *t = begin();
    struct swn_op op;
    (void)arg;
    op_open(&op, &t, &use, 1);
    op_close(&op);
    CHECK(swn_arena_find(e->arena, t->own)->state == SWN_RESIDENT);
    child_has_no_hole();
    CHECK(tensor_right(t, t->own));
}

/* Where no page map can be opened any more, nobody knows which weights were written: all of them count as written. */
static void unreadable_page_map(void *arg)
{
    static const struct rlimit none = {0, 0};
    struct tensor *t = begin();
    (void)arg;
    tensor_stamp(t, t->own, 77);
    CHECK(tensor_mapped(t));
    close(e->res.pagemap_fd);
    CHECK(!setrlimit(RLIMIT_NOFILE, &none));
    swn_engine_prefork();
    pid_t pid = fork();
    if (!pid) {
        swn_engine_postfork_child();
        CHECK(tensor_right(t, t->own));
        _exit(0);
    }
    swn_engine_postfork_parent();
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid && !status);
    CHECK(tensor_right(t, t->own));
}

IN_A_CHILD(weights_in_frames, 60)
IN_A_CHILD(freed_weights, 60)
IN_A_CHILD(written_weight, 60)
IN_A_CHILD(unreadable_page_map, 60)

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_weights_in_frames), cmocka_unit_test(test_freed_weights),
                                       cmocka_unit_test(test_written_weight),
                                       cmocka_unit_test(test_unreadable_page_map)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
