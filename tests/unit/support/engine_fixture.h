/* tests/unit/support/engine_fixture.h - the whole engine without PyTorch: real arena, pool, spill file and fetch queue,
 * a torch backend that accepts everything, and weights that know what their bytes have to be.
 *
 * An engine lives as long as its process, so every test runs in a child of its own (run_alone); in it failures are
 * CHECKs, which say where and end the child.
 */
#ifndef SWN_TESTS_UNIT_SUPPORT_ENGINE_FIXTURE_H
#define SWN_TESTS_UNIT_SUPPORT_ENGINE_FIXTURE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include "skeleton/engine/engine_internal.h"
#include "tests/unit/support/random.h"

#define MIB ((size_t)1 << 20)

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);                                  \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

/* Runs test(arg) in a child and returns its exit status: 0 passed; -N: killed by signal N. The caller has one thread.
 * `seconds` is what it may take on a quiet machine; a child that takes three times that is killed by SIGALRM. */
int run_alone(void (*test)(void *arg), void *arg, unsigned seconds);
/* The unit test test_NAME, which is NAME(NULL) in a child of its own. After <cmocka.h>. */
#define IN_A_CHILD(name, seconds)                                                                                      \
    static void test_##name(void **state)                                                                              \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        assert_int_equal(run_alone(name, NULL, seconds), 0);                                                           \
    }

/* Starts the engine with a budget, a fetch path and a table of its own; 0 or -errno. Installs the fault handler. The
 * store directory is a fresh one and is removed when the child ends. */
int engine_begin(size_t budget, enum swn_config_fetch fetch, const struct swn_io *io);

/* SWAPNET_DEVICE_BUDGET of the next. */
extern size_t engine_device_budget;
/* SWAPNET_DISK of the next; may be NULL. */
extern const char *engine_disk;
/* Whether it wants to see operators. */
extern int engine_watched;
/* Its store directory, which the test may make before. Static. */
const char *engine_store_dir(void);

/* A tensor as PyTorch has it: `word` is the storage's data pointer. `stamp` says what its bytes are. */
struct tensor {
    void *word;
    uintptr_t own; /* its own address */
    size_t len;
    uint64_t stamp;
};

/* 1, or 0 when the engine has no memory for it. The bytes are those of `stamp`. */
int tensor_make(struct tensor *t, size_t len, uint64_t stamp);
void tensor_free(struct tensor *t);

/* Stores the bytes of `stamp` through `at`: a program's raw store, announced to nobody. */
void tensor_stamp(struct tensor *t, uintptr_t at, uint64_t stamp);
/* Whether the bytes at `at` are those of t's stamp: one word of every cache line. */
int tensor_right(const struct tensor *t, uintptr_t at);
/* The same for `len` bytes from `off`, which are at `at`; both multiples of a cache line. */
int tensor_right_part(const struct tensor *t, uintptr_t at, size_t off, size_t len);

/* Whether a frame has bytes of it, or they are on their way; whether some are mapped at its address; and whether the
 * plan has any of it come and go. */
int tensor_in_frames(const struct tensor *t);
int tensor_mapped(const struct tensor *t);
int tensor_streams(const struct tensor *t);

/* Of frames that stay, and of all others. */
size_t engine_kept_bytes(void);
size_t engine_window_bytes(void);

/* An operator on n tensors, as the torch backend announces it. */
void op_open(struct swn_op *op, struct tensor **tensors, const enum swn_use *uses, unsigned n);
void op_close(struct swn_op *op);
/* The commonest one: reads one weight and checks what it sees, through the word and at its own address. */
void op_read(struct tensor *t);
/* The lengths of the slices of args[index], which is `sliced`: at most `most`. Returns how many. */
size_t op_slices(struct swn_op *op, unsigned index, size_t *bytes, size_t most);

/* A safetensors file of n tensors, of so many bytes each and with the stamps 100, 101, ...: its descriptor; it has no
 * name. The first one is at *data_off. */
int weights_file(unsigned n, size_t bytes_each, void (*name_of)(char *name, unsigned i), uint64_t *data_off);

/* Puts the file in the place of stderr, as a program's dup2 does. 0 or -1. */
int redirect_stderr(int fd);

/* Waits until no frame is being read into. */
void engine_reads_arrive(void);
/* The engine's counters, copied under its lock: the fetch thread counts too. */
struct swn_counters engine_counters(void);
/* Checks that nothing is left behind by tensors that are all gone. */
void engine_is_empty(void);

#endif
