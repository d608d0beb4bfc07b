/* Models are found where they should be, and nothing outside of the repository is, whatever names and links say. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "scheduler/serve/repository.h"

static char base[64];
static struct swn_repository *repository;
static struct swn_repository_model model;
static char why[SWN_ERRMSG];

static void put(const char *path, const char *text)
{
    char whole[256];
    snprintf(whole, sizeof whole, "%s/%s", base, path);
    for (char *slash = strchr(whole + strlen(base) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(whole, 0755);
        *slash = '/';
    }
    FILE *f = fopen(whole, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int make_base(void **state)
{
    char path[80];
    (void)state;
    strcpy(base, "/tmp/t_repository.XXXXXX");
    if (!mkdtemp(base))
        return -1;
    snprintf(path, sizeof path, "%s/r", base);
    mkdir(path, 0755);
    return swn_repository_open(&repository, path, why);
}

static int remove_base(void **state)
{
    char command[96];
    (void)state;
    swn_repository_close(repository);
    snprintf(command, sizeof command, "rm -rf '%s'", base);
    return system(command);
}

static void test_names_that_are_none(void **state)
{
    static const char *const bad[] = {"", ".", "..", ".x", "a/b", "a b", "a\n", "\xc3\xa9", "a%", "a:b", "a\\b", "a'"};
    char long_name[SWN_REPOSITORY_NAME + 1];

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(swn_repository_name_is_valid(bad[i], strlen(bad[i])));
    memset(long_name, 'a', sizeof long_name);
    assert_false(swn_repository_name_is_valid(long_name, SWN_REPOSITORY_NAME));
    assert_true(swn_repository_name_is_valid(long_name, SWN_REPOSITORY_NAME - 1));
    assert_false(swn_repository_name_is_valid("a\0b", 3));
    assert_true(swn_repository_name_is_valid("resnet-50_v1.5", 14));
}

static void test_models_are_found_and_sorted(void **state)
{
    char(*names)[SWN_REPOSITORY_NAME];
    size_t count;

    (void)state;
    put("r/b/1/model.pt", "");
    put("r/a/1/model.pt", "");
    put("r/.git/1/model.pt", "");
    put("r/a file", "");
    put("r/file", "");
    put("elsewhere/1/model.pt", "");
    char from[128], to[128];
    snprintf(from, sizeof from, "%s/elsewhere", base);
    snprintf(to, sizeof to, "%s/r/link", base);
    assert_int_equal(symlink(from, to), 0);
    assert_int_equal(swn_repository_names(repository, &names, &count), 0);
    assert_int_equal(count, 2);
    assert_string_equal(names[0], "a");
    assert_string_equal(names[1], "b");
    free(names);
    assert_int_equal(swn_repository_model(repository, "link", &model, why), -ENOENT);
    assert_int_equal(swn_repository_model(repository, "..", &model, why), -ENOENT);
    assert_int_equal(swn_repository_model(repository, "none", &model, why), -ENOENT);
}

static void test_labels_lie_in_the_models_folder(void **state)
{
    static const char config[] = "output { name: \"y\" data_type: TYPE_FP32 dims: [ 3 ] label_filename: \"%s\" }";
    static const char *const bad[] = {"../labels.txt", "none.txt", "link.txt", "1"};
    char text[256], path[128];
    const char *label;
    size_t bytes;

    (void)state;
    put("r/l/1/model.pt", "");
    put("r/l/labels.txt", "a\nbc\n");
    put("r/labels.txt", "secret\n");
    snprintf(path, sizeof path, "%s/r/l/link.txt", base);
    assert_int_equal(symlink("labels.txt", path), 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(text, sizeof text, config, bad[i]);
        put("r/l/config.pbtxt", text);
        int rc = swn_repository_model(repository, "l", &model, why);
        assert_true(rc < 0 && rc != -ENOENT && model.labels == NULL); /* there is a model of that name */
        assert_non_null(strstr(why, i ? bad[i] : "label_filename"));
        swn_repository_model_free(&model);
    }
    snprintf(text, sizeof text, config, "labels.txt");
    put("r/l/config.pbtxt", text);
    assert_int_equal(swn_repository_model(repository, "l", &model, why), 0);
    label = swn_labels_get(model.labels, "y", 1, &bytes);
    assert_true(label && bytes == 2 && memcmp(label, "bc", 2) == 0);
    assert_null(swn_labels_get(model.labels, "y", 2, &bytes));
    assert_null(swn_labels_get(model.labels, "x", 0, &bytes));
    swn_repository_model_free(&model);
}

static void test_newest_version_is_served(void **state)
{
    char path[PATH_MAX], want[PATH_MAX];

    (void)state;
    put("r/m/1/model.pt", "");
    put("r/m/2/model.pt", "");
    put("r/m/10/model.pt2", "");
    put("r/m/011/model.pt", ""); /* no version */
    put("r/m/x/model.pt", "");
    put("r/m/20/other", ""); /* no model */
    assert_int_equal(swn_repository_model(repository, "m", &model, why), 0);
    assert_int_equal(model.count, 1);
    assert_int_equal(model.versions[0].version, 10);
    assert_string_equal(model.versions[0].file, "model.pt2");
    assert_int_equal(swn_repository_path(repository, "m", &model.versions[0], path, sizeof path), 0);
    snprintf(want, sizeof want, "%s/r/m/10/model.pt2", base);
    assert_string_equal(path, want);
    assert_int_equal(swn_repository_path(repository, "m", &model.versions[0], path, 10), -ENAMETOOLONG);
}

static void test_config_chooses_versions_and_file(void **state)
{
    (void)state;
    put("r/m/1/model.pt", "");
    put("r/m/2/model.pt", "");
    put("r/m/3/model.pt", "");
    put("r/m/config.pbtxt", "version_policy: { all { } }");
    assert_int_equal(swn_repository_model(repository, "m", &model, why), 0);
    assert_int_equal(model.count, 3);
    put("r/m/config.pbtxt", "version_policy: { specific { versions: [1, 3, 9] } }");
    assert_int_equal(swn_repository_model(repository, "m", &model, why), 0);
    assert_int_equal(model.count, 2);
    assert_int_equal(model.versions[1].version, 3);
    put("r/m/config.pbtxt", "version_policy: { specific { versions: [9] } }");
    assert_int_equal(swn_repository_model(repository, "m", &model, why), -EINVAL);
    assert_non_null(strstr(why, "version_policy names, but 3 others"));
    put("r/m/config.pbtxt", "version_policy: { latest { num_versions: 2 } }");
    assert_int_equal(swn_repository_model(repository, "m", &model, why), 0);
    assert_int_equal(model.versions[0].version, 2);
    put("r/m/2/net.pt", "");
    put("r/m/config.pbtxt", "default_model_filename: \"net.pt\" version_policy: { all { } }");
    assert_int_equal(swn_repository_model(repository, "m", &model, why), 0);
    assert_int_equal(model.count, 1);
    assert_string_equal(model.versions[0].file, "net.pt");
}

static void test_what_is_wrong_is_said(void **state)
{
    char from[128], to[128];

    (void)state;
    put("r/m/1/nothing", "");
    assert_int_equal(swn_repository_model(repository, "m", &model, why), -EINVAL);
    assert_non_null(strstr(why, "model.pt"));
    put("r/m/1/model.pt", "");
    put("r/m/config.pbtxt", "no such thing");
    assert_int_equal(swn_repository_model(repository, "m", &model, why), -EINVAL);
    assert_non_null(strstr(why, "config.pbtxt: line 1"));
    put("r/m/config.pbtxt", "name: \"n\"");
    assert_int_equal(swn_repository_model(repository, "m", &model, why), -EINVAL);
    assert_non_null(strstr(why, "names another model"));
    put("r/m/config.pbtxt", "default_model_filename: \"../1/model.pt\"");
    assert_int_equal(swn_repository_model(repository, "m", &model, why), -EINVAL);
    /* A link out of the repository is no file of it. */
    snprintf(from, sizeof from, "%s/r/m/1/model.pt", base);
    snprintf(to, sizeof to, "%s/r/l/1/model.pt", base);
    put("r/l/1/x", "");
    assert_int_equal(symlink(from, to), 0);
    assert_int_equal(swn_repository_model(repository, "l", &model, why), -EINVAL);
    snprintf(to, sizeof to, "%s/r/l/config.pbtxt", base);
    assert_int_equal(symlink("/etc/passwd", to), 0);
    assert_true(swn_repository_model(repository, "l", &model, why) < 0);
}

static void test_missing_repository_is_said(void **state)
{
    struct swn_repository *none;

    (void)state;
    assert_int_equal(swn_repository_open(&none, "/nowhere/at/all", why), -ENOENT);
    assert_non_null(strstr(why, "/nowhere/at/all"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_that_are_none),
        cmocka_unit_test_setup_teardown(test_models_are_found_and_sorted, make_base, remove_base),
        cmocka_unit_test_setup_teardown(test_labels_lie_in_the_models_folder, make_base, remove_base),
        cmocka_unit_test_setup_teardown(test_newest_version_is_served, make_base, remove_base),
        cmocka_unit_test_setup_teardown(test_config_chooses_versions_and_file, make_base, remove_base),
        cmocka_unit_test_setup_teardown(test_what_is_wrong_is_said, make_base, remove_base),
        cmocka_unit_test(test_missing_repository_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
