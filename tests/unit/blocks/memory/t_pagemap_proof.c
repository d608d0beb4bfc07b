/* Description: a page map that does not tell the truth is found out before anything depends on it. */
/* wraps: pread */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "skeleton/runtime/runtime.h"
#include "skeleton/engine/engine.h"
#include "blocks/memory/pagemap_proof.h"
#include "blocks/memory/residency.h"

#define PRESENT (1ULL << 63)
#define SWAPPED (1ULL << 62)
#define FILE_PAGE (1ULL << 61)

/* What the map says of a page: the truth, or what is made of it. */
typedef uint64_t liar(uint64_t entry, unsigned nth);
static liar *lie;
static unsigned looks;
static int failure; /* of the next look: -errno */

ssize_t __real_pread(int fd, void *buf, size_t n, off_t off);
ssize_t __wrap_pread(int fd, void *buf, size_t n, off_t off);
ssize_t __wrap_pread(int fd, void *buf, size_t n, off_t off)
{
    uint64_t *entries = buf;
    ssize_t got = __real_pread(fd, buf, n, off);
    looks++;
    if (failure) {
        errno = -failure;
        return -1;
    }
    for (ssize_t i = 0; lie && i < got / 8; i++)
        entries[i] = lie(entries[i], (unsigned)i);
    return got;
}

static uint64_t zeros(uint64_t entry, unsigned nth)
{
    (void)nth;
    return entry & 0;
}

static uint64_t all_there(uint64_t entry, unsigned nth)
{
    (void)nth;
    return entry | PRESENT;
}

static uint64_t all_of_files(uint64_t entry, unsigned nth)
{
    (void)nth;
    return entry | FILE_PAGE;
}

static uint64_t none_of_files(uint64_t entry, unsigned nth)
{
    (void)nth;
    return entry & ~FILE_PAGE;
}

/* There, or not; nothing else. */
static uint64_t as_mincore(uint64_t entry, unsigned nth)
{
    (void)nth;
    return entry & PRESENT ? PRESENT | FILE_PAGE : 0;
}

static uint64_t neighbours(uint64_t entry, unsigned nth)
{
    static uint64_t before;
    uint64_t was = nth ? before : 0;
    before = entry;
    return was;
}

/* A copy that has been swapped out is said to be none; without swap all of them are. */
static uint64_t no_swap(uint64_t entry, unsigned nth)
{
    (void)nth;
    return !(entry & FILE_PAGE) && entry & (PRESENT | SWAPPED) ? SWAPPED | FILE_PAGE : entry;
}

/* Truth, in words that the kernel may use as well. */
static uint64_t swapped_copies(uint64_t entry, unsigned nth)
{
    (void)nth;
    return !(entry & FILE_PAGE) && entry & PRESENT ? (entry & ~PRESENT) | SWAPPED : entry;
}

static uint64_t other_bits(uint64_t entry, unsigned nth)
{
    return entry | (1ULL << 55) | (nth & 1 ? 1ULL << 56 : 0) | 12345;
}

static int begin(struct swn_residency *res, struct swn_arena **arena)
{
    assert_int_equal(swn_arena_create(arena, 64 << 20, 0), 0);
    looks = 0;
    return swn_residency_init(res, &swn_io_sys, *arena);
}

static void the_truth(void **state)
{
    static liar *const truths[] = {NULL, swapped_copies, other_bits};
    struct swn_residency res;
    struct swn_arena *arena;
    (void)state;
    for (size_t i = 0; i < sizeof truths / sizeof *truths; i++) {
        lie = truths[i];
        assert_int_equal(begin(&res, &arena), 0);
        assert_true(looks > 0 && res.pagemap_fd >= 0);
        swn_residency_fini(&res);
        swn_arena_destroy(arena);
    }
    lie = NULL;
}

static void lies(void **state)
{
    static liar *const all[] = {zeros, all_there, all_of_files, none_of_files, as_mincore, neighbours, no_swap};
    struct swn_residency res;
    struct swn_arena *arena;
    (void)state;
    int before = open("/dev/null", O_RDONLY);
    close(before);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        lie = all[i];
        assert_int_equal(begin(&res, &arena), -EBADMSG);
        assert_int_equal(res.pagemap_fd, -1); /* and nothing is left behind */
        int after = open("/dev/null", O_RDONLY);
        assert_int_equal(after, before);
        close(after);
        swn_arena_destroy(arena);
    }
    lie = NULL;
}

static void a_map_that_cannot_be_read(void **state)
{
    struct swn_residency res;
    struct swn_arena *arena;
    (void)state;
    failure = -EPERM;
    assert_int_equal(begin(&res, &arena), -EPERM);
    failure = 0;
    swn_arena_destroy(arena);
}

/* Real-time programs lock all that they will ever map, and the kernel writes to each page. */
static void locked_memory(void **state)
{
    struct swn_residency res;
    struct swn_arena *arena;
    (void)state;
    assert_int_equal(swn_arena_create(&arena, 64 << 20, 0), 0);
    if (mlockall(MCL_FUTURE)) {
        swn_arena_destroy(arena);
        skip();
    }
    int err = swn_residency_init(&res, &swn_io_sys, arena);
    munlockall();
    assert_int_equal(err, 0);
    swn_residency_fini(&res);
    swn_arena_destroy(arena);
}

static void the_engine_does_not_start(void **state)
{
    static const struct swn_config config = {.enabled = 1, .budget_bytes = 64 << 20, .store_dir = "/var/tmp"};
    char why[512] = "";
    (void)state;
    lie = zeros;
    int err = swn_runtime_start(&config, why, sizeof why);
    lie = NULL;
    assert_int_equal(err, -EBADMSG);
    assert_non_null(strstr(why, "/proc/self/pagemap does not tell"));
    assert_false(swn_engine_running());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_truth),
        cmocka_unit_test(lies),
        cmocka_unit_test(locked_memory),
        cmocka_unit_test(a_map_that_cannot_be_read),
        cmocka_unit_test(the_engine_does_not_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
