/* Description: a frame has bytes of one mapped file only, and no address shows it once the program has dropped pages
 * there. */
#define _GNU_SOURCE
#include "blocks/memory/publish.h"
#include "tests/unit/support/engine_fixture.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
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
static void begin(const struct swn_io *io)
{
    char *at = NULL;
    CHECK(engine_begin(BUDGET, io ? SWN_CONFIG_PREAD : SWN_CONFIG_AUTO, io) == 0);
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
    begin(NULL);
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

static struct swn_io io;
static _Atomic int held_up;

static ssize_t pread_when_told(void *ctx, int fd, void *buf, size_t len, uint64_t off)
{
    while (atomic_load(&held_up))
        usleep(1000);
    return swn_io_sys.pread(ctx, fd, buf, len, off);
}

static void *read_one(void *arg)
{
    use(arg, SWN_USE_WEIGHT);
    return NULL;
}

/* The frame's memory for the weight's part that is mapped, of `bytes`, where something else is being read into the
 * frame. */
static void *await_pending(const struct tensor *t, size_t *bytes)
{
    for (;; usleep(1000)) {
        void *found = NULL;
        swn_lock(&e->lock);
        struct swn_range *r = swn_arena_find(e->arena, swn_round_up(t->own, SWN_PAGE));
        for (const struct swn_frame *f = swn_pool_first(e->pool); f; f = f->next) {
            const struct swn_part *p = f->pending ? swn_pool_part_of(f, r) : NULL;
            if (p && p->mapped) {
                found = (char *)swn_pool_at(e->pool, f) + p->at;
                *bytes = p->bytes;
            }
        }
        swn_unlock(&e->lock);
        if (found)
            return found;
    }
}

/* The program drops a page of a weight, or unmaps the file's header, while a neighbour's bytes are on their way into
 * the frame that has the weight's end: what stays of the weight is the file's, not what comes into the frame. */
static void dropped_beside_a_read(int unmapped)
{
    struct tensor *t = &weights[0][2];
    pthread_t thread;
    size_t bytes = 0;
    io = swn_io_sys;
    io.pread = pread_when_told;
    begin(&io);
    use(t, SWN_USE_WEIGHT);
    atomic_store(&held_up, 1);
    CHECK(!pthread_create(&thread, NULL, read_one, t + 1));
    void *in_frame = await_pending(t, &bytes);
    if (unmapped) {
        char *file = (char *)(weights[0][0].own / SWN_PAGE * SWN_PAGE);
        swn_mapped_file_end(file, SWN_PAGE);
        CHECK(!munmap(file, SWN_PAGE));
    } else {
        CHECK(!swn_mapped_file_drop((void *)swn_round_up(t->own, SWN_PAGE), SWN_PAGE));
    }
    memset(in_frame, 0xee, bytes);
    CHECK(tensor_right(t, t->own));
    atomic_store(&held_up, 0);
    CHECK(!pthread_join(thread, NULL));
    use(t, SWN_USE_WEIGHT);
}

static void page_dropped(void *arg)
{
    (void)arg;
    dropped_beside_a_read(0);
}

static void header_unmapped(void *arg)
{
    (void)arg;
    dropped_beside_a_read(1);
}

#ifndef __SANITIZE_THREAD__ /* which does not let a child start threads */
/* As the hook of mmap does for the program. */
static int mmap_hooked(void *ctx, void **addr, size_t len, int prot, int flags, int fd, uint64_t off)
{
    if (flags & MAP_FIXED)
        swn_mapped_file_end_kept(*addr, len);
    return swn_io_sys.mmap(ctx, addr, len, prot, flags, fd, off);
}

/* A child maps the file again where its parent's frames were: that is not the program mapping something over it. */
static void mapped_again_in_a_child(void *arg)
{
    struct tensor *t = &weights[0][2];
    (void)arg;
    io = swn_io_sys;
    io.mmap = mmap_hooked;
    begin(&io);
    use(t, SWN_USE_WEIGHT);
    CHECK(tensor_mapped(t));
    swn_engine_prefork();
    pid_t pid = fork();
    if (!pid) {
        swn_engine_postfork_child();
        CHECK(swn_arena_find(e->arena, swn_round_up(t->own, SWN_PAGE)) && tensor_right(t, t->own));
        use(t, SWN_USE_WEIGHT);
        _exit(0);
    }
    swn_engine_postfork_parent();
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && !status);
}
IN_A_CHILD(mapped_again_in_a_child, 60)
#endif

IN_A_CHILD(files_side_by_side, 60)
IN_A_CHILD(page_dropped, 60)
IN_A_CHILD(header_unmapped, 60)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files_side_by_side),
        cmocka_unit_test(test_page_dropped),
        cmocka_unit_test(test_header_unmapped),
#ifndef __SANITIZE_THREAD__
        cmocka_unit_test(test_mapped_again_in_a_child),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
