/* publish.c - what it costs to bring memory to a weight's own address and to take it away again.
 *
 *     bench-publish DIRECTORY ROUNDS [busy] <SIZES
 *
 * SIZES are the bytes of tensors in the order of allocation. They lie in an arena one after the other, at multiples of
 * 64 KiB, each a private mapping of its extent of a file in DIRECTORY. A frame is memory of a memfd that holds the
 * bytes already: reading is not measured. To publish a unit is to forbid stores to it, to look in pagemap whether there
 * has been one, to map a frame over it, and to fill the page tables; to take it away is to forbid, to look, and to map
 * each tensor's extent. Each round takes every variant through all units once. Prints a JSON line for each variant,
 * whose times are medians over the rounds. busy: beside a second thread that computes all the time, as a math library's
 * does: page table entries that go have to go from its processor as well.
 *
 * Congruent means that an address and its place in the memfd are equal modulo 2 MiB: the kernel can then map a huge
 * page with one entry.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define CHUNK (2 * MIB)
#define GRAIN (64 * KIB)
#define PAGE ((size_t)4096)
#define POOL (64 * MIB)
#define MOST_TENSORS 4096
#define MOST_ROUNDS 1000

/* Those of Linux 5.14 and 6.1, where the headers are older. */
#define POPULATE_READ 22
#define POPULATE_WRITE 23
#define COLLAPSE 25

enum step { FORBID, LOOK, SHOW, POPULATE, FORBID_AGAIN, LOOK_AGAIN, GO_HOME, STEPS };
static const char *const step_names[STEPS] = {"forbid",       "look",       "map",     "populate",
                                              "forbid again", "look again", "map file"};

struct variant {
    const char *name;
    size_t unit; /* bytes, of aligned chunks; 0: each tensor by itself */
    bool huge;
    size_t shift; /* how far a frame is from congruent */
    bool alike;   /* extents lie in the file as in the arena: one mapping does for all of a unit */
};
static const struct variant variants[] = {
    {"tensors, 4 KiB pages", 0, false, 0, false},    {"tensors, huge, not congruent", 0, true, 7 * GRAIN, false},
    {"tensors, huge, congruent", 0, true, 0, false}, {"chunks", CHUNK, true, 0, false},
    {"runs of 8 MiB", 8 * MIB, true, 0, false},      {"runs of 64 MiB", POOL, true, 0, false},
    {"chunks, extents alike", CHUNK, true, 0, true}, {"runs of 8 MiB, extents alike", 8 * MIB, true, 0, true},
};
#define VARIANTS (sizeof variants / sizeof *variants)

static size_t tensor_at[MOST_TENSORS + 1], extent_at[MOST_TENSORS], tensor_bytes[MOST_TENSORS], tensors;
static unsigned char *arena;
static int weights_fd, small_fd, huge_fd, pagemap_fd;
/* Of a step by the clock; of a pass what the thread used, so that other programs' turns are not in it. */
static uint64_t spent_ns[VARIANTS][MOST_ROUNDS][STEPS], used_ns[VARIANTS][MOST_ROUNDS];
static size_t mappings[VARIANTS], done_bytes[VARIANTS];

static uint64_t now_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static _Noreturn void fail(const char *what)
{
    perror(what);
    exit(1);
}

static size_t up(size_t value, size_t step)
{
    return (value + step - 1) / step * step;
}

/* Address space that is a multiple of 2 MiB away from 0. */
static unsigned char *reserve(size_t bytes)
{
    unsigned char *at = mmap(NULL, bytes + CHUNK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        fail("bench-publish: reserve");
    return at + (up((uintptr_t)at, CHUNK) - (uintptr_t)at);
}

/* Frames that are there: a memfd, of huge pages if the kernel has them. */
static int make_pool(bool huge)
{
    size_t bytes = POOL + CHUNK; /* room for what is not congruent */
    int fd = memfd_create("bench-publish", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)bytes))
        fail("bench-publish: memfd");
    unsigned char *window = reserve(bytes);
    if (mmap(window, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
        fail("bench-publish: window");
    if (huge && madvise(window, bytes, MADV_HUGEPAGE))
        fail("bench-publish: huge pages");
    memset(window, 1, bytes);
    if (huge && madvise(window, bytes, COLLAPSE))
        fail("bench-publish: no huge pages for a memfd");
    return fd;
}

static void map(size_t at, size_t bytes, int fd, size_t offset)
{
    if (mmap(arena + at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, fd, (off_t)offset) ==
        MAP_FAILED)
        fail("bench-publish: map");
}

/* The first tensor that ends behind this address. */
static size_t tensor_over(size_t at)
{
    size_t low = 0, high = tensors;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (tensor_at[middle + 1] > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* The tensors, and parts of tensors, that lie in [begin, end), each from its place in the file. Returns how many. */
static size_t map_extents(const struct variant *v, size_t begin, size_t end)
{
    if (v->alike) {
        map(begin, end - begin, weights_fd, begin);
        return 1;
    }
    size_t count = 0;
    for (size_t i = tensor_over(begin); i < tensors && tensor_at[i] < end; i++, count++) {
        size_t from = tensor_at[i] > begin ? tensor_at[i] : begin, to = tensor_at[i + 1] < end ? tensor_at[i + 1] : end;
        map(from, to - from, weights_fd, extent_at[i] + from - tensor_at[i]);
    }
    return count;
}

static void look(size_t at, size_t bytes)
{
    static uint64_t entries[512];
    for (size_t page = 0, pages = bytes / PAGE; page < pages;) {
        size_t some = pages - page < 512 ? pages - page : 512;
        if (pread(pagemap_fd, entries, some * 8, (off_t)(((uintptr_t)(arena + at) / PAGE + page) * 8)) <= 0)
            fail("bench-publish: pagemap");
        page += some;
    }
}

static void forbid(size_t at, size_t bytes)
{
    if (mprotect(arena + at, bytes, PROT_READ))
        fail("bench-publish: mprotect");
}

static void populate(size_t at, size_t bytes)
{
    if (madvise(arena + at, bytes, POPULATE_READ))
        fail("bench-publish: populate");
}

static void unit(size_t index, size_t begin, size_t end, uint64_t ns[STEPS])
{
    const struct variant *v = &variants[index];
    /* Frames are taken in turn; a tensor's starts as far into a huge page as the tensor itself. */
    static size_t next;
    size_t offset = begin % CHUNK, bytes = end - begin;
    if (offset + bytes + next > POOL)
        next = 0;
    size_t frame = next + (offset + v->shift) % CHUNK;
    next = up(next + offset + bytes, CHUNK) % POOL;
    uint64_t at[STEPS + 1];
    at[FORBID] = now_ns(CLOCK_MONOTONIC);
    forbid(begin, bytes);
    at[LOOK] = now_ns(CLOCK_MONOTONIC);
    look(begin, bytes);
    at[SHOW] = now_ns(CLOCK_MONOTONIC);
    map(begin, bytes, v->huge ? huge_fd : small_fd, frame);
    at[POPULATE] = now_ns(CLOCK_MONOTONIC);
    populate(begin, bytes);
    at[FORBID_AGAIN] = now_ns(CLOCK_MONOTONIC);
    forbid(begin, bytes);
    at[LOOK_AGAIN] = now_ns(CLOCK_MONOTONIC);
    look(begin, bytes);
    at[GO_HOME] = now_ns(CLOCK_MONOTONIC);
    mappings[index] += map_extents(v, begin, end);
    at[STEPS] = now_ns(CLOCK_MONOTONIC);
    for (int i = 0; i < STEPS; i++)
        ns[i] += at[i + 1] - at[i];
    done_bytes[index] += bytes;
}

/* All of the model; by chunks, all of its full ones. Returns what the thread used. */
static uint64_t pass(size_t index, uint64_t ns[STEPS])
{
    const struct variant *v = &variants[index];
    size_t full = tensor_at[tensors] / CHUNK * CHUNK;
    map_extents(v, 0, tensor_at[tensors]);
    mappings[index] = done_bytes[index] = 0;
    uint64_t began = now_ns(CLOCK_THREAD_CPUTIME_ID);
    if (v->unit)
        for (size_t at = 0; at < full; at += v->unit)
            unit(index, at, at + v->unit < full ? at + v->unit : full, ns);
    else
        for (size_t i = 0; i < tensors; i++)
            for (size_t at = tensor_at[i]; at < tensor_at[i + 1]; at += POOL - CHUNK)
                unit(index, at, at + POOL - CHUNK < tensor_at[i + 1] ? at + POOL - CHUNK : tensor_at[i + 1], ns);
    return now_ns(CLOCK_THREAD_CPUTIME_ID) - began;
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static double median_us(uint64_t *values, size_t count)
{
    qsort(values, count, sizeof *values, by_size);
    return (double)values[count / 2] / 1e3;
}

static void report(size_t index, size_t rounds)
{
    static uint64_t values[MOST_ROUNDS];
    size_t total = 0;
    for (size_t i = 0; i < tensors; i++)
        total += tensor_bytes[i];
    double mib = (double)done_bytes[index] / (double)MIB, chunks = (double)done_bytes[index] / (double)CHUNK;
    memcpy(values, used_ns[index], rounds * sizeof *values);
    double pass_us = median_us(values, rounds);
    printf("{\"variant\": \"%s\", \"bytes\": %zu, \"tensors\": %zu, \"done_bytes\": %zu, \"full_share\": %.4f, "
           "\"mappings_per_chunk\": %.3f, \"pass_us\": %.1f, \"us_per_mib\": %.3f, \"steps\": {",
           variants[index].name, total, tensors, done_bytes[index],
           (double)(tensor_at[tensors] / CHUNK * CHUNK) / (double)tensor_at[tensors],
           chunks > 0 ? (double)mappings[index] / chunks : 0, pass_us, mib > 0 ? pass_us / mib : 0);
    for (int s = 0; s < STEPS; s++) {
        for (size_t r = 0; r < rounds; r++)
            values[r] = spent_ns[index][r][s];
        printf("%s\"%s\": %.3f", s ? ", " : "", step_names[s], mib > 0 ? median_us(values, rounds) / mib : 0);
    }
    printf("}}\n");
}

/* One page lies between two extents, as a header would: neighbours in the arena are not one mapping by chance. */
static void lay_out(void)
{
    size_t file = 0, bytes;
    while (scanf("%zu", &bytes) == 1 && tensors < MOST_TENSORS) {
        tensor_bytes[tensors] = bytes;
        tensor_at[tensors + 1] = tensor_at[tensors] + up(bytes, GRAIN);
        extent_at[tensors++] = file;
        file += up(bytes, PAGE) + PAGE;
    }
    size_t length = tensor_at[tensors] > file ? tensor_at[tensors] : file;
    if (!tensors || ftruncate(weights_fd, (off_t)(length + GRAIN)))
        fail("bench-publish: sizes");
    arena = reserve(tensor_at[tensors]);
}

static void *compute(void *arg)
{
    for (volatile unsigned n = 0;; n++)
        ;
    return arg;
}

int main(int argc, char **argv)
{
    size_t rounds = argc >= 3 ? strtoull(argv[2], NULL, 10) : 0;
    bool busy = argc == 4 && !strcmp(argv[3], "busy");
    if (!rounds || rounds > MOST_ROUNDS || argc > 3 + busy) {
        fprintf(stderr, "usage: bench-publish DIRECTORY ROUNDS [busy] <SIZES\n");
        return 2;
    }
    pthread_t thread;
    if (busy && pthread_create(&thread, NULL, compute, NULL))
        fail("bench-publish: thread");
    weights_fd = open(argv[1], O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    pagemap_fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (weights_fd < 0 || pagemap_fd < 0)
        fail("bench-publish: open");
    lay_out();
    small_fd = make_pool(false);
    huge_fd = make_pool(true);
    for (size_t i = 0; i < VARIANTS; i++)
        pass(i, (uint64_t[STEPS]){0}); /* not counted: page tables of the arena are made */
    for (size_t round = 0; round < rounds; round++)
        for (size_t i = 0; i < VARIANTS; i++)
            used_ns[i][round] = pass(i, spent_ns[i][round]);
    for (size_t i = 0; i < VARIANTS; i++)
        report(i, rounds);
    return 0;
}
