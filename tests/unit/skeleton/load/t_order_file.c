/* Description: the order that a run leaves beside a store is one that was whole when it was looked at, and is left
 * beside nothing. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "skeleton/load/load_internal.h"

static struct swn_engine engine;
static const struct swn_store_layer layers[] = {{.name = "a"}, {.name = "a long name"}, {.name = "c"}};
static char top[512], path[600];
static struct swn_store store;
static uint32_t order[3];
static struct source source;

static int setup(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(top, sizeof top, "%s/t_order_file.XXXXXX", tmp && *tmp ? tmp : "/var/tmp");
    if (!mkdtemp(top))
        return -1;
    snprintf(path, sizeof path, "%s/store", top);
    engine.io = &swn_io_sys;
    pthread_mutex_init(&engine.lock, NULL);
    store = (struct swn_store){.path = path, .layers = layers, .layer_count = 3};
    store.file.fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    source = (struct source){.store = &store, .learned = order, .learned_count = 2};
    order[0] = 2;
    order[1] = 0;
    return store.file.fd < 0 ? -1 : 0;
}

static int teardown(void **state)
{
    (void)state;
    char command[700];
    close(store.file.fd);
    snprintf(command, sizeof command, "rm -rf '%s'", top);
    return system(command);
}

/* What is beside the store; "" when there is nothing. */
static const char *written(void)
{
    static char text[100];
    char name[700];
    snprintf(name, sizeof name, "%s" SWN_ORDER_SUFFIX, path);
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    assert_true(n >= 0);
    text[n] = 0;
    if (fd >= 0)
        close(fd);
    return text;
}

static void beside_the_store(void **state)
{
    (void)state;
    swn_load_write_order(&engine, &source);
    assert_string_equal(written(), "c\na\n");
}

static void not_its_own(void **state)
{
    (void)state;
    order[1] = 2;
    order[0] = 0;
    swn_load_write_order(&engine, &source);
    assert_string_equal(written(), "");
}

static void store_is_gone(void **state)
{
    (void)state;
    assert_int_equal(unlink(path), 0);
    swn_load_write_order(&engine, &source);
    assert_string_equal(written(), "");
}

static void *write_order(void *none)
{
    swn_load_write_order(&engine, &source);
    return none;
}

/* Whoever plans has the engine's lock, and the order is not to be looked at meanwhile. */
static void another_thread_plans(void **state)
{
    (void)state;
    pthread_t thread;
    pthread_mutex_lock(&engine.lock);
    assert_int_equal(pthread_create(&thread, NULL, write_order, NULL), 0);
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    assert_string_equal(written(), "");
    memcpy(order, (const uint32_t[]){1, 2, 0}, sizeof order);
    source.learned_count = 3;
    pthread_mutex_unlock(&engine.lock);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_string_equal(written(), "a long name\nc\na\n");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(beside_the_store),
        TEST(not_its_own),
        TEST(store_is_gone),
        TEST(another_thread_plans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
