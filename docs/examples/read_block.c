/* read_block.c - reads a model block by block through swapnet's C API.
 *
 *     cc read_block.c $(pkg-config --cflags --libs swapnet) -o read_block
 *     swapnet-partition build model.safetensors -o model.store
 *     ./read_block model.store 64
 *
 * Prints each tensor with its shape and its first element's bytes. At any moment two blocks are in memory at most, and
 * both together take no more than the budget (MiB, the second argument).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <swapnet.h>

static void show(const struct swapnet_tensor *t)
{
    const unsigned char *first = t->data;
    int empty = 0;
    printf("  %s %s [", t->name, t->dtype);
    for (unsigned i = 0; i < t->ndim; i++) {
        printf("%s%lld", i ? ", " : "", (long long)t->shape[i]);
        empty |= t->shape[i] == 0;
    }
    if (empty)
        printf("]\n");
    else
        printf("] %02x\n", first[0]);
}

static int read_block(struct swapnet_model *model, size_t block, size_t blocks)
{
    struct swapnet_tensor t;
    int rc = swapnet_swap_in(model, block);
    if (rc) {
        fprintf(stderr, "block %zu: %s\n", block, strerror(-rc));
        return rc;
    }
    if (block + 1 < blocks)
        swapnet_prefetch(model, block + 1); /* comes in while we compute with this one */
    printf("block %zu: %llu bytes\n", block, (unsigned long long)swapnet_block_bytes(model, block));
    for (size_t i = 0; i < swapnet_tensor_count(model, block); i++)
        if (swapnet_tensor(model, block, i, &t) == 0)
            show(&t);
    return swapnet_swap_out(model, block);
}

int main(int argc, char **argv)
{
    struct swapnet_model *model;
    char why[512];
    if (argc != 3) {
        fprintf(stderr, "usage: %s STORE BUDGET_IN_MIB\n", argv[0]);
        return 2;
    }
    int rc = swapnet_open(&model, argv[1], why, sizeof why);
    if (rc) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    int blocks = swapnet_cut(model, (uint64_t)(atof(argv[2]) * (1 << 20)));
    if (blocks < 0)
        fprintf(stderr, "the model needs %llu bytes at least\n", (unsigned long long)swapnet_smallest_budget(model));
    rc = blocks < 0 ? blocks : 0;
    for (int i = 0; i < blocks && !rc; i++)
        rc = read_block(model, (size_t)i, (size_t)blocks);
    swapnet_close(model);
    return rc ? 1 : 0;
}
