/* Description: the engine's fetch queue is as deep as the profile of the disk with its store directory says, or the
 * profile that SWAPNET_DISK names; without one, or with one that is no good, it is what it always was.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "profiles/disk_profile.h"
#include "tests/unit/support/engine_fixture.h"
#include "base/text_file.h"

#define PROFILE(queue)                                                                                                 \
    "{\"schema\":1,\"kind\":\"device\",\"name\":\"x\",\"coefficients\":{\"alpha_s_per_byte\":1e-9}" queue "}"
#define QUEUE(depth, bytes) PROFILE(",\"queue\":{\"depth\":" #depth ",\"request_bytes\":" #bytes "}")

/* Where the library looks for the profile of the disk with its store directory. */
static const char *usual_place(void)
{
    static char path[4096];
    struct stat st;
    mkdir(engine_store_dir(), 0700);
    CHECK(!stat(engine_store_dir(), &st));
    CHECK(!swn_disk_path(path, sizeof path, engine_store_dir(), st.st_dev));
    return path;
}

/* What a program's weights are read with, once some have to leave, and that they are right. */
static void expect(unsigned depth, size_t piece_bytes)
{
    enum { WEIGHTS = 8 };
    struct tensor weights[WEIGHTS];
    struct swn_engine *e = &swn_engine_one;
    CHECK(!engine_begin(16 * MIB, SWN_CONFIG_AUTO, NULL));
    for (unsigned i = 0; i < WEIGHTS; i++)
        CHECK(tensor_make(&weights[i], 4 * MIB, i + 1));
    for (int pass = 0; pass < 4; pass++)
        for (unsigned i = 0; i < WEIGHTS; i++)
            op_read(&weights[i]);
    CHECK(e->fetch && swn_fetch_depth(e->fetch) == depth && swn_fetch_piece_bytes(e->fetch) == piece_bytes);
    for (unsigned i = 0; i < WEIGHTS; i++)
        tensor_free(&weights[i]);
    engine_is_empty();
}

static void nothing_known(void *arg)
{
    (void)arg;
    expect(SWN_FETCH_DEPTH, SWN_FETCH_PIECE);
}

static void beside_the_stores(void *arg)
{
    (void)arg;
    CHECK(!swn_textfile_write(usual_place(), QUEUE(16, 524288)));
    expect(16, 524288);
}

static void of_another_disk(void *arg)
{
    (void)arg;
    char path[4096];
    struct stat st;
    usual_place();
    CHECK(!stat(engine_store_dir(), &st));
    CHECK(!swn_disk_path(path, sizeof path, engine_store_dir(), st.st_dev + 1));
    CHECK(!swn_textfile_write(path, QUEUE(16, 524288)));
    expect(SWN_FETCH_DEPTH, SWN_FETCH_PIECE);
}

static void named(void *arg)
{
    char path[4096];
    CHECK(!swn_textfile_write(usual_place(), QUEUE(16, 524288)));
    snprintf(path, sizeof path, "%s/mine.json", engine_store_dir());
    CHECK(!swn_textfile_write(path, QUEUE(4, 131072)));
    CHECK(!chdir(engine_store_dir()));
    engine_disk = arg ? "mine.json" : path;
    expect(4, 131072);
}

static void off(void *arg)
{
    (void)arg;
    CHECK(!swn_textfile_write(usual_place(), QUEUE(16, 524288)));
    engine_disk = "off";
    expect(SWN_FETCH_DEPTH, SWN_FETCH_PIECE);
}

static void more_than_the_queue_can(void *arg)
{
    (void)arg;
    CHECK(!swn_textfile_write(usual_place(), QUEUE(4096, 1073741824)));
    expect(SWN_FETCH_MOST_DEPTH, SWN_FETCH_MOST_PIECE);
}

/* Said once, and read as without it. */
static void no_good(void *arg)
{
    const char *what = arg, *path = usual_place();
    char said[4096] = "";
    int pipes[2];
    if (!strcmp(what, "fifo"))
        CHECK(!mkfifo(path, 0600));
    else if (!strcmp(what, "directory"))
        CHECK(!mkdir(path, 0700));
    else if (!strcmp(what, "long"))
        CHECK(!swn_textfile_write(path, "") && !truncate(path, 1 << 20));
    else if (!strcmp(what, "missing"))
        engine_disk = "/nonexistent/disk.json";
    else
        CHECK(!swn_textfile_write(path, what));
    int err = dup(STDERR_FILENO);
    CHECK(!pipe(pipes) && !redirect_stderr(pipes[1]));
    expect(SWN_FETCH_DEPTH, SWN_FETCH_PIECE);
    CHECK(!redirect_stderr(err) && !close(pipes[1]));
    for (ssize_t n; (n = read(pipes[0], said + strlen(said), sizeof said - 1 - strlen(said))) > 0;)
        ;
    const char *line = strstr(said, "cannot use the device profile");
    CHECK(line && !strstr(line + 1, "cannot use the device profile"));
}

static void test_no_good(void **state)
{
    (void)state;
    static const char *const cases[] = {"fifo",
                                        "directory",
                                        "long",
                                        "missing",
                                        "",
                                        "{",
                                        QUEUE(0, 1048576),
                                        QUEUE(8, 1000),
                                        QUEUE(-1, 1048576),
                                        PROFILE(""),
                                        ("{\"schema\":1,\"kind\":\"model\",\"name\":\"x\",\"other_bytes\":0,"
                                         "\"layers\":[]}")};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (run_alone(no_good, (void *)cases[i], 60))
            fail_msg("with %s", cases[i]);
}

IN_A_CHILD(nothing_known, 60)
IN_A_CHILD(beside_the_stores, 60)
IN_A_CHILD(of_another_disk, 60)
IN_A_CHILD(off, 60)
IN_A_CHILD(more_than_the_queue_can, 60)

static void test_named(void **state)
{
    (void)state;
    assert_int_equal(run_alone(named, NULL, 60), 0);
    assert_int_equal(run_alone(named, "relative", 60), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_known),
        cmocka_unit_test(test_beside_the_stores),
        cmocka_unit_test(test_of_another_disk),
        cmocka_unit_test(test_named),
        cmocka_unit_test(test_off),
        cmocka_unit_test(test_more_than_the_queue_can),
        cmocka_unit_test(test_no_good),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
