/* beta.c - what registering a parameter costs: SwapNet's beta, seconds per reference (section 6.1).
 *
 *     cmake --build build/release --target bench-beta && build/release/bin/bench-beta STORE [REPEATS]
 *
 * Registers and unregisters the whole model as one block, and each layer as its own, REPEATS times, and prints the
 * median of nanoseconds per reference, and what the skeleton takes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "blocks/store/skeleton.h"

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Nanoseconds per reference, in and out. */
static double one_pass(struct swn_skeleton *sk, struct swn_block *blocks, size_t count, void *base)
{
    double begin = now_ns();
    for (size_t i = 0; i < count; i++) {
        swn_skeleton_register(sk, &blocks[i], base);
        /* nothing may be left out because nobody looks */
        __asm__ volatile("" : : "r"(sk->slots) : "memory");
        swn_skeleton_unregister(sk, &blocks[i]);
    }
    return (now_ns() - begin) / (double)sk->slot_count;
}

static void measure(struct swn_skeleton *sk, uint32_t layers_per_block, size_t repeats, const char *what)
{
    uint32_t layers = (uint32_t)sk->store->layer_count;
    size_t count = (layers + layers_per_block - 1) / layers_per_block;
    struct swn_block *blocks = calloc(count, sizeof *blocks);
    double *times = calloc(repeats, sizeof *times);
    if (!blocks || !times)
        exit(1);
    for (size_t i = 0; i < count; i++) {
        uint32_t first = (uint32_t)i * layers_per_block;
        if (swn_block_make(&blocks[i], sk, first,
                           layers - first < layers_per_block ? layers - first : layers_per_block))
            exit(1);
    }
    for (size_t i = 0; i < repeats; i++)
        times[i] = one_pass(sk, blocks, count, (void *)4096);
    qsort(times, repeats, sizeof *times, by_value);
    printf("%s: %.2f ns per reference (median of %zu)\n", what, times[repeats / 2], repeats);
    for (size_t i = 0; i < count; i++)
        swn_block_free(&blocks[i]);
    free(blocks);
    free(times);
}

int main(int argc, char **argv)
{
    struct swn_store *s;
    struct swn_skeleton *sk;
    char why[SWN_ERRMSG] = "";
    size_t repeats = argc > 2 ? strtoul(argv[2], NULL, 10) : 1001;
    if (argc < 2 || !repeats) {
        fprintf(stderr, "usage: %s STORE [REPEATS]\n", argv[0]);
        return 2;
    }
    if (swn_store_open(&s, &swn_io_sys, argv[1], why) || swn_skeleton_make(&sk, s)) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    printf("%zu references in %zu layers; the skeleton takes %zu bytes\n", sk->slot_count, s->layer_count,
           swn_skeleton_bytes(sk));
    if (s->layer_count) {
        measure(sk, (uint32_t)s->layer_count, repeats, "the model as one block");
        measure(sk, 1, repeats, "each layer as a block ");
    }
    swn_skeleton_free(sk);
    swn_store_close(s, &swn_io_sys);
    return 0;
}
