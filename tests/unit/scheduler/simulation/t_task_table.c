/* The tables are read strictly; what is read is written byte by byte as it was. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>

#include "scheduler/simulation/table.h"

#define NETWORKS "network,dense,load_bytes,compute_ns,activation_bytes,output_bytes,peak_bytes\n"
#define ARRIVALS "arrived_ns,job,network,inputs,upstream,outcome\n"

static struct swn_network_table networks;

static void read_networks(const char *text, int rc, uint32_t at)
{
    uint32_t line;

    assert_int_equal(swn_networks_parse(text, strlen(text), &networks, &line), rc);
    if (rc)
        assert_int_equal(line, at);
}

static void check(const char *text, int rc, uint32_t at)
{
    struct swn_arrival_table t;
    uint32_t line;

    assert_int_equal(swn_arrivals_parse(text, strlen(text), &networks, &t, &line), rc);
    if (rc) {
        assert_int_equal(line, at);
        assert_null(t.arrivals);
    } else {
        char *written;
        size_t size;
        FILE *to = open_memstream(&written, &size);

        swn_arrivals_write(&t, &networks, to);
        fclose(to);
        assert_string_equal(written, text);
        free(written);
    }
    swn_arrivals_free(&t);
}

static void networks_are_read_and_written(void **state)
{
    static const char text[] = NETWORKS "a,0,10,20,30,5,0\na,1,11,21,31,0,0\nb-2.x,0,1,2,3,0,77\n";
    char *written;
    size_t size;
    FILE *to = open_memstream(&written, &size);

    (void)state;
    read_networks(text, 0, 0);
    assert_int_equal(networks.count, 2);
    assert_int_equal(networks.networks[0].layer_count, 2);
    assert_int_equal(networks.networks[1].peak_bytes, 77);
    assert_int_equal(networks.layers[0][1].compute_ns, 21);
    assert_int_equal(networks.layers[0][1].is_dense, 1);
    assert_int_equal(swn_networks_find(&networks, "b-2.x", 5), 1);
    assert_int_equal(swn_networks_find(&networks, "b", 1), SWN_TABLE_NONE);
    swn_networks_write(&networks, to);
    fclose(to);
    assert_string_equal(written, text);
    free(written);
}

static void networks_that_are_not_well_formed_are_refused(void **state)
{
    static const char *const bad[] = {
        "a,0,10,20,30,5\n",
        "a,0,10,20,30,5,0,0\n",
        "a,2,10,20,30,5,0\n",
        "a,0,-1,20,30,5,0\n",
        "a,0,01,20,30,5,0\n",
        "a,0,10,20,30,31,0\n",
        "a,0,10,20,30,5,0",
        "a,0,10,20,30,5,0\r\n",
        "-,0,10,20,30,5,0\n",
        ",0,10,20,30,5,0\n",
        "a b,0,10,20,30,5,0\n",
        "a,0,,20,30,5,0\n",
        "a,0,10,1e3,30,5,0\n",
        "a,0,10, 20,30,5,0\n",
        "a,0,1099511627777,20,30,5,0\n",
        "a,0,18446744073709551617,20,30,5,0\n",
        "a,0,10,1000000000001,30,5,0\n",
        "\n",
        "a123456789012345678901234567890123,0,10,20,30,5,0\n",
    };

    (void)state;
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[256];

        snprintf(text, sizeof text, "%s%s", NETWORKS, bad[i]);
        read_networks(text, -EINVAL, 2);
    }
    read_networks("", -EINVAL, 1);
    read_networks(NETWORKS, -EINVAL, 1);
    read_networks("network\na,0,10,20,30,5,0\n", -EINVAL, 1);
    read_networks(NETWORKS "a,0,1,2,3,0,0\nb,0,1,2,3,0,0\na,0,1,2,3,0,0\n", -EINVAL, 4); /* not together */
    read_networks(NETWORKS "a,0,1,2,3,0,0\na,0,1,2,3,0,1\n", -EINVAL, 3);                /* another peak */
}

static void arrivals_are_read_and_written(void **state)
{
    (void)state;
    read_networks(NETWORKS "a,0,10,20,30,5,0\nb,0,1,2,3,0,0\n", 0, 0);
    check(ARRIVALS "0,0,a,1,-,1\n", 0, 0);
    check(ARRIVALS "5,0,a,1,-,0\n5,0,b,2,a,1\n5,1,b,256,-,1\n9,2,a,1,-,1\n", 0, 0);
    check("", -EINVAL, 1);
    check(ARRIVALS, -EINVAL, 1);
    check(ARRIVALS "0,1,a,1,-,1\n", -EINVAL, 2);              /* jobs begin at 0 */
    check(ARRIVALS "0,0,a,1,-,1\n0,2,a,1,-,1\n", -EINVAL, 3); /* and have no gaps */
    check(ARRIVALS "5,0,a,1,-,1\n4,1,a,1,-,1\n", -EINVAL, 3); /* time goes back */
    check(ARRIVALS "5,0,a,1,-,1\n6,0,b,1,a,1\n", -EINVAL, 3); /* a job at two times */
    check(ARRIVALS "5,0,c,1,-,1\n", -EINVAL, 2);              /* no such network */
    check(ARRIVALS "5,0,b,1,a,1\n5,0,a,1,-,1\n", -EINVAL, 2); /* upstream is below */
    check(ARRIVALS "5,0,a,1,-,1\n5,1,b,1,a,1\n", -EINVAL, 3); /* in another job */
    check(ARRIVALS "5,0,a,0,-,1\n", -EINVAL, 2);
    check(ARRIVALS "5,0,a,257,-,1\n", -EINVAL, 2);
    check(ARRIVALS "5,0,a,1,-,2\n", -EINVAL, 2);
    check(ARRIVALS "5,0,a,1,-,1", -EINVAL, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(networks_are_read_and_written),
        cmocka_unit_test(networks_that_are_not_well_formed_are_refused),
        cmocka_unit_test(arrivals_are_read_and_written),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
