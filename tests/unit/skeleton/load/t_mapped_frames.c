/* Description: a frame has bytes of one mapped file only. */
#define _GNU_SOURCE
#include "blocks/memory/publish.h"
#include "tests/unit/support/engine_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "base/huge_pages.h"
#include "skeleton/core/op_window.h"
#include "skeleton/engine/engine.h"
#include "skeleton/engine/section.h"
#include "skeleton/load/mapped_file.h"

#define FILES 2u
#define WEIGHTS 8u
#define BYTES (3 * MIB + 5 * SWN_PAGE) /* one and a half chunks, and no whole number of granules */
#define BUDGET (24 * MIB)

static struct swn_engine *const e = &swn_engine_one;
static struct tensor weights[FILES][WEIGHTS];

/* Without a number no next layer is predicted: what is read is what an operator asks for. */
static void name_of(char *name, unsigned i)
{
    sprintf(name, "layer_%c.weight", 'a' + (int)i);
}

/* The second file begins where the first one ends, within a huge page; its first weight lies in two of them. */
static void begin(void)
{
    char *at = NULL;
    CHECK(engine_begin(BUDGET, SWN_CONFIG_AUTO, NULL) == 0);
    for (unsigned i = 0; i < FILES; i++) {
        uint64_t data_off;
        int fd = weights_file(WEIGHTS, BYTES, name_of, &data_off);
        size_t len = data_off + WEIGHTS * BYTES, pages = swn_round_up(len, SWN_PAGE);
        if (!i) {
            at = mmap(NULL, FILES * pages + 2 * SWN_HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            CHECK(at != MAP_FAILED);
            at = (char *)swn_round_up((uintptr_t)at + pages, SWN_HUGE) + SWN_HUGE / 4 - pages;
        }
        CHECK(mmap(at, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd, 0) == at);
        swn_mapped_file_begin(at, len, fd, 0);
        for (unsigned k = 0; k < WEIGHTS; k++)
            weights[i][k] =
                (struct tensor){.own = (uintptr_t)at + data_off + k * BYTES, .len = BYTES, .stamp = k + 100};
        at += pages;
    }
    swn_engine_after_alloc();
}

static void use(struct tensor *t, enum swn_use as)
{
    struct swn_op op = {.name = "aten::test", .n = 1};
    op.args[0] = (struct swn_arg){.mapped = 1, .data = t->own, .bytes = BYTES, .upto = BYTES, .use = as};
    swn_engine_op_begin(&op);
    CHECK(tensor_right(t, t->own));
    if (as == SWN_USE_WRITE)
        tensor_stamp(t, t->own, t->stamp + 1000);
    swn_engine_op_end(&op);
}

static void pass(unsigned file)
{
    for (unsigned k = 0; k < WEIGHTS; k++)
        use(&weights[file][k], SWN_USE_WEIGHT);
}

/* Whether each frame has parts of ranges that know its chunk as their own: nobody else looks for them there. */
static int parts_are_known(void)
{
    int known = 1;
    swn_lock(&e->lock);
    for (const struct swn_frame *f = swn_pool_first(e->pool); f; f = f->next)
        for (unsigned i = 0; i < f->n; i++)
            if (f->parts[i].range) {
                struct swn_chunks own = swn_residency_chunks(&e->res, f->parts[i].range);
                known &= f->chunk >= own.first && f->chunk < own.end;
            }
    swn_unlock(&e->lock);
    return known;
}

static void files_side_by_side(void *arg)
{
    struct tensor *last = &weights[0][WEIGHTS - 1], *first = &weights[1][0];
    (void)arg;
    begin();
    pass(0);
    for (unsigned k = 0; k < WEIGHTS - 1; k++)
        use(&weights[0][k], SWN_USE_WEIGHT); /* the last one's frames leave */
    use(first, SWN_USE_WEIGHT);
    CHECK(parts_are_known());
    use(last, SWN_USE_WRITE);
    swn_engine_prefork();
    pid_t pid = fork();
    if (!pid) {
        swn_engine_postfork_child();
        CHECK(tensor_right(last, last->own));
        _exit(0);
    }
    swn_engine_postfork_parent();
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && !status);
    for (unsigned i = 0; i < 2 * FILES; i++)
        pass(1 - i % FILES);
    CHECK(parts_are_known());
}

IN_A_CHILD(files_side_by_side, 60)

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_files_side_by_side)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
