/* Description: a kernel that does not read past the page cache into a device's memory (its mappings may be VM_IO): the
 * bytes get there by another way, and that is said once. Where it does, no other way is taken. */
#define _GNU_SOURCE
#include "tests/unit/support/device_cases.h"
#include "tests/unit/support/engine_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/fakes/cuda/standin.h"
#include "skeleton/device/device.h"
#include "skeleton/load/load.h"

#define WEIGHTS 24
#define WEIGHT_BYTES MIB
#define BUDGET (12 * MIB)

static struct tensor weights[WEIGHTS];
static struct swn_device_memory *held[WEIGHTS];
static void *at[WEIGHTS];
static int refusal;
static _Atomic unsigned straight, refused, cached, elsewhere;

static ssize_t count_pread(void *ctx, int fd, void *buf, size_t len, uint64_t off)
{
    int direct = fcntl(fd, F_GETFL) & O_DIRECT, there = standin_knows(buf);
    *(there ? direct ? refusal ? &refused : &straight : &cached : &elsewhere) += 1;
    return there && direct && refusal ? refusal : swn_io_sys.pread(ctx, fd, buf, len, off);
}

static void name_of(char *name, unsigned i)
{
    sprintf(name, "layer%02u.weight", i);
}

static void begin(const char *device)
{
    static struct swn_io io;
    struct swn_runtime_services host;
    uint64_t off;
    io = swn_io_sys;
    io.pread = count_pread;
    standin_be(device);
    engine_device_budget = strcmp(device, "discrete") ? 0 : 8 * MIB;
    CHECK(!engine_begin(BUDGET, SWN_CONFIG_PREAD, &io));
    swn_engine_services(&host);
    int fd = weights_file(WEIGHTS, WEIGHT_BYTES, name_of, &off);
    for (unsigned i = 0; i < WEIGHTS; i++) {
        CHECK(tensor_make(&weights[i], WEIGHT_BYTES, i + 100));
        off_t from = (off_t)(off + i * WEIGHT_BYTES);
        CHECK(swn_load_read(fd, (void *)weights[i].own, WEIGHT_BYTES, from) == (ssize_t)WEIGHT_BYTES);
    }
    close(fd);
    swn_engine_after_alloc();
}

/* All go to the device, where there is no room for all to stay, and are used there. How many come and go. */
static unsigned use_all(void)
{
    unsigned swaps = 0;
    for (unsigned i = 0; i < WEIGHTS; i++) {
        enum swn_way way = (enum swn_way)swn_device_way(0, weights[i].own, WEIGHT_BYTES, 1);
        CHECK(way != SWN_WAY_COPY);
        held[i] = swn_device_open(0, way, weights[i].own, WEIGHT_BYTES, &at[i]);
        CHECK(held[i]);
        swaps += swn_device_swaps(held[i]) != 0;
    }
    for (unsigned i = 0; i < WEIGHTS; i++) {
        void *now = at[i];
        int captured = 0, comes = swn_device_swaps(held[i]);
        if (comes)
            CHECK(!swn_device_begin(&held[i], 1, NULL, &now, &captured));
        standin_await(NULL);
        CHECK(tensor_right(&weights[i], (uintptr_t)standin_view(now)));
        if (comes)
            swn_device_end(&held[i], 1, NULL, captured);
    }
    return swaps;
}

static unsigned times(const char *text, const char *word)
{
    unsigned n = 0;
    for (; (text = strstr(text, word)); text++)
        n++;
    return n;
}

/* With what was said meanwhile in `said`. */
static unsigned use_and_listen(char *said, size_t size)
{
    int err = dup(STDERR_FILENO), words = memfd_create("words", MFD_CLOEXEC);
    CHECK(!redirect_stderr(words));
    unsigned swaps = use_all();
    CHECK(!redirect_stderr(err));
    ssize_t n = pread(words, said, size - 1, 0);
    said[n > 0 ? n : 0] = '\0';
    return swaps;
}

static void with(const char *device, int err, int buffers)
{
    char said[4096];
    refusal = err;
    begin(device);
    unsigned swaps = use_and_listen(said, sizeof said);
    CHECK(swaps > 0 && (buffers ? swaps < WEIGHTS : 1));
    CHECK(times(said, "straight into the device's buffers: what goes there is copied") == (err && buffers));
    CHECK(times(said, "straight into memory of the device: weights go through the page cache") == (err != 0));
    CHECK(times(said, "swapnet: ") == (unsigned)(err ? 1 + buffers : 0));
    CHECK(err ? refused > 0 && !straight : straight > 0 && !cached && !refused);
    CHECK(elsewhere > 0);
    for (unsigned i = 0; i < WEIGHTS; i++) {
        CHECK(!swn_device_close(held[i], NULL, NULL));
        tensor_free(&weights[i]);
    }
    CHECK(engine_counters().live_bytes == 0);
}

static int has_buffers(const char *device)
{
    return !strcmp(device, "nano");
}

static void taken(void *device)
{
    with(device, 0, has_buffers(device));
}

static void not_a_page(void *device)
{
    with(device, -EFAULT, has_buffers(device));
}

static void not_direct(void *device)
{
    with(device, -EINVAL, has_buffers(device));
}

static const struct device_case cases[] = {
    {"taken", taken, "nano xavier discrete"},
    {"not_a_page", not_a_page, "nano xavier discrete"},
    {"not_direct", not_direct, "nano orin"},
};

int main(void)
{
    return run_device_cases(cases, sizeof cases / sizeof cases[0]);
}
