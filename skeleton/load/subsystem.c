/* skeleton/load/subsystem.c - the functions of loading by reference that the core calls. */
#include "skeleton/engine/subsystem.h"
#include "skeleton/load/compressed_read.h"
#include "skeleton/load/load.h"
#include "skeleton/load/mapped_file.h"
#include "skeleton/load/untracked.h"

static struct swn_range *successor(struct swn_engine *e, const struct swn_range *r)
{
    /* A store is nearly in the order of execution, and the layers of a mapped file are alike. */
    return r->mapped_file ? swn_mapped_file_successor(e, r) : swn_load_successor(r);
}

static const struct swn_weight_source source = {
    .check = swn_load_check,
    .verify = swn_load_verify,
    .prepare = swn_compressed_read_prepare,
    .retry = swn_compressed_read_retry,
    .saved = swn_compressed_read_choose,
    .name = swn_load_name,
    .successor = successor,
    .learned = swn_load_order_learned,
};

static void before(struct swn_op *op)
{
    swn_mapped_file_woken(op);
    op->prepared = op->copies && op->n == 2 && swn_load_prepare(op);
}

static void begin(struct swn_engine *e, struct swn_op *op)
{
    op->skip = op->copies && op->n == 2 && swn_load_move(e, op);
    if (op->prepared)
        swn_load_done();
    if (op->skip)
        op->n = 0;
    swn_mapped_file_resolve(e, op);
}

static const struct swn_op_filter filter = {.before = before, .begin = begin};

static void start(struct swn_engine *e)
{
    e->features.source = &source;
}

static void fork_child(struct swn_engine *e)
{
    (void)e;
    swn_load_fork_child();
}

static void stats(struct swn_engine *e, struct swn_stats *out)
{
    swn_compressed_read_stats(out);
    out->untracked_weight_bytes = swn_untracked_bytes(e);
}

static void at_exit(struct swn_engine *e)
{
    (void)e;
    swn_load_exit();
}

const struct swn_subsystem swn_load_subsystem = {
    .start = start,
    .fork_child = fork_child,
    .stats = stats,
    .unlocked = swn_untracked_look,
    .exit = at_exit,
    .op = &filter,
};
