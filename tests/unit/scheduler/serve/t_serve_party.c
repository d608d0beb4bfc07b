/* The server registers once with swapnetd, keeps to its lease, says when it cannot, and keeps it when the daemon is
 * lost.
 */
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
#include <fcntl.h>
#include <limits.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "scheduler/protocol/wire.h"
#include "scheduler/serve/serve_party.h"

#define MIB ((uint64_t)1 << 20)
#define MS UINT64_C(1000000)
#define CAP (200 * MIB)

static char runtime[PATH_MAX / 2], folder[PATH_MAX / 2 + 16], path[PATH_MAX];
static int listener = -1, peer = -1;
static struct swn_lines heard;
static struct swn_serve_party *party;
static struct swn_serve_party_needs needs;
static uint64_t now;

static void listen_again(void)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};

    assert_true(strlen(path) < sizeof sa.sun_path);
    strcpy(sa.sun_path, path);
    unlink(path);
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&sa, sizeof sa), 0);
    assert_int_equal(listen(listener, 4), 0);
}

static int begin(void **state)
{
    (void)state;
    strcpy(runtime, "/tmp/swapnet-party-XXXXXX");
    if (!mkdtemp(runtime))
        return -1;
    snprintf(folder, sizeof folder, "%s/swapnet", runtime);
    snprintf(path, sizeof path, "%s/swapnetd.sock", folder);
    if (mkdir(folder, 0700) || setenv("XDG_RUNTIME_DIR", runtime, 1))
        return -1;
    listen_again();
    swn_lines_init(&heard);
    needs = (struct swn_serve_party_needs){
        .least_bytes = 30 * MIB, .demand_bytes = 150 * MIB, .held_bytes = 30 * MIB, .is_settled = 1};
    now = swn_now_ns();
    return 0;
}

static void drop_peer(void)
{
    if (peer >= 0)
        close(peer);
    peer = -1;
    swn_lines_free(&heard);
    swn_lines_init(&heard);
}

static int end(void **state)
{
    (void)state;
    swn_serve_party_close(party);
    party = NULL;
    drop_peer();
    swn_lines_free(&heard);
    if (listener >= 0)
        close(listener);
    listener = -1;
    unlink(path);
    rmdir(folder);
    return rmdir(runtime);
}

static int open_party(const char *daemon)
{
    char why[SWN_ERRMSG];
    struct swn_serve_party_options options = {.daemon = daemon,
                                              .name = "server",
                                              .urgency = 2,
                                              .cap_bytes = CAP,
                                              .least_bytes = needs.least_bytes,
                                              .alone_ns = 50 * MS};
    int rc = swn_serve_party_open(&party, &options, why), probe;

    /* With "auto" it looked whether somebody listens. */
    if (party && (!daemon || *daemon != '/') && (probe = accept(listener, NULL, NULL)) >= 0)
        close(probe);
    return rc;
}

static void say(void)
{
    assert_true(swn_serve_party_has_to_say(party, now));
    swn_serve_party_say(party, &needs, now);
}

static void accept_peer(void)
{
    peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    assert_true(peer >= 0);
}

/* The next message of the server; SWN_WIRE_UNKNOWN: it has sent none. */
static struct swn_wire hear(void)
{
    struct swn_wire m = {0};
    char why[SWN_WIRE_TEXT], *line;
    size_t length;

    line = swn_lines_next(&heard, &length);
    if (!line) {
        int rc = swn_lines_fill(&heard, peer, 0);
        if (rc != -EAGAIN)
            assert_in_range(rc, 1, SWN_WIRE_MOST);
        line = swn_lines_next(&heard, &length);
    }
    if (line)
        assert_int_equal(swn_wire_decode(&m, line, length, why), 0);
    return m;
}

static void lease(uint64_t seq, uint64_t bytes)
{
    struct swn_wire m = {.op = SWN_WIRE_LEASE, .has = SWN_HAS_SEQ | SWN_HAS_BUDGET, .seq = seq, .budget = bytes};
    char line[256];
    int n = swn_wire_encode(&m, line, sizeof line - 1);

    line[n] = '\n';
    assert_int_equal(write(peer, line, (size_t)n + 1), n + 1);
    swn_serve_party_hear(party, now);
}

/* The party has said hello to its daemon. */
static void connect_party(void)
{
    open_party("auto");
    say();
    accept_peer();
    hear();
}

static void test_nothing_rules_without_a_daemon(void **state)
{
    (void)state;
    assert_int_equal(open_party("off"), 0);
    assert_null(party);
    assert_int_equal(open_party("somewhere"), -EINVAL);
    close(listener);
    listener = -1;
    unlink(path);
    assert_int_equal(open_party("auto"), 0);
    assert_null(party);
    assert_true(swn_serve_party_bytes(NULL, CAP) == CAP);
    assert_int_equal(swn_serve_party_due(NULL), 0);
    assert_false(swn_serve_party_has_to_say(NULL, UINT64_MAX));
    swn_serve_party_hear(NULL, now);
    swn_serve_party_hurry(NULL);
}

static void test_registers_with_what_it_needs_and_confirms(void **state)
{
    struct swn_wire m;

    (void)state;
    assert_int_equal(open_party(NULL), 0);
    assert_non_null(party);
    assert_string_equal(swn_serve_party_daemon(party), path);
    say();
    accept_peer();
    m = hear();
    assert_int_equal(m.op, SWN_WIRE_HELLO);
    assert_string_equal(m.name, "server");
    assert_true(m.minimum == 30 * MIB && m.demand == 150 * MIB && m.cap == CAP && m.lease == 0);
    assert_true(m.urgency > 1.9);
    assert_true(swn_serve_party_bytes(party, CAP) == 30 * MIB); /* until there is a lease */
    assert_false(swn_serve_party_has_to_say(party, now));
    lease(1, 120 * MIB);
    assert_true(swn_serve_party_bytes(party, CAP) == 120 * MIB);
    say();
    m = hear();
    assert_int_equal(m.op, SWN_WIRE_ACK);
    assert_true(m.seq == 1 && m.budget == 120 * MIB);
    assert_false(swn_serve_party_has_to_say(party, now));
}

static void test_begin_waits_for_a_lease_and_not_for_ever(void **state)
{
    uint64_t before;

    (void)state;
    assert_int_equal(open_party("auto"), 0);
    before = swn_now_ns();
    swn_serve_party_begin(party, &needs);
    assert_true(swn_now_ns() - before >= 250 * MS);
    accept_peer();
    assert_int_equal(hear().op, SWN_WIRE_HELLO);
}

static void test_smaller_lease_is_confirmed_when_the_engines_are_within(void **state)
{
    struct swn_wire m;

    (void)state;
    connect_party();
    lease(1, 150 * MIB);
    needs.held_bytes = 150 * MIB;
    say();
    hear();
    lease(2, 60 * MIB);
    needs.is_settled = 0;
    say();
    assert_int_equal(hear().op, SWN_WIRE_UNKNOWN);
    needs.held_bytes = 60 * MIB;
    say();
    m = hear();
    assert_int_equal(m.op, SWN_WIRE_ACK);
    assert_true(m.seq == 2 && m.budget == 60 * MIB);
}

static void test_lease_below_what_engines_can_do_without_is_refused(void **state)
{
    struct swn_wire m;

    (void)state;
    connect_party();
    lease(1, 150 * MIB);
    needs.held_bytes = 150 * MIB;
    say();
    hear();
    lease(2, 60 * MIB);
    needs.held_bytes = needs.least_bytes = 90 * MIB; /* the engines gave what they could */
    say();
    m = hear();
    assert_int_equal(m.op, SWN_WIRE_REFUSE);
    assert_true(m.seq == 2 && m.minimum == 90 * MIB && m.lease == 90 * MIB);
    assert_true(swn_serve_party_bytes(party, CAP) == 90 * MIB);
}

static void test_reports_changes_that_matter(void **state)
{
    struct swn_wire m;

    (void)state;
    connect_party();
    now += 1000 * MS;
    needs.demand_bytes += MIB;
    needs.resident_bytes = 20 * MIB;
    say();
    m = hear();
    assert_int_equal(m.op, SWN_WIRE_UPDATE);
    assert_true(m.has == SWN_HAS_RESIDENT && m.resident == 20 * MIB);
    needs.demand_bytes = 50 * MIB;
    assert_false(swn_serve_party_has_to_say(party, now));
    swn_serve_party_hurry(party);
    say();
    m = hear();
    assert_int_equal(m.op, SWN_WIRE_UPDATE);
    assert_true(m.has & SWN_HAS_DEMAND && m.demand == 50 * MIB);
}

static void test_lease_outlives_the_daemon(void **state)
{
    struct swn_wire m;

    (void)state;
    connect_party();
    lease(1, 120 * MIB);
    needs.held_bytes = 120 * MIB;
    say();
    drop_peer();
    close(listener);
    listener = -1;
    swn_serve_party_hear(party, now);
    assert_int_equal(swn_serve_party_socket(party), -1);
    assert_true(swn_serve_party_bytes(party, CAP) == 120 * MIB);
    for (int i = 0; i < 20; i++) { /* in vain, and for longer than a server without a lease would wait */
        now = swn_serve_party_due(party) > now ? swn_serve_party_due(party) : now;
        say();
    }
    assert_true(swn_serve_party_bytes(party, CAP) == 120 * MIB);
    listen_again();
    now = swn_serve_party_due(party);
    say();
    accept_peer();
    m = hear();
    assert_int_equal(m.op, SWN_WIRE_HELLO);
    assert_true(m.lease == 120 * MIB);
    lease(7, 90 * MIB);
    assert_true(swn_serve_party_bytes(party, CAP) == 90 * MIB);
}

static void test_goes_on_alone_when_no_daemon_comes(void **state)
{
    (void)state;
    open_party("auto");
    close(listener);
    listener = -1;
    for (int i = 0; i < 20 && swn_serve_party_daemon(party); i++) {
        assert_true(swn_serve_party_bytes(party, CAP) == 30 * MIB);
        now = swn_serve_party_due(party) > now ? swn_serve_party_due(party) : now;
        say();
    }
    assert_null(swn_serve_party_daemon(party));
    assert_true(swn_serve_party_bytes(party, CAP) == CAP);
}

static void test_daemon_that_is_named_is_waited_for(void **state)
{
    (void)state;
    close(listener);
    listener = -1;
    unlink(path);
    open_party(path);
    for (int i = 0; i < 20; i++) {
        now = swn_serve_party_due(party) > now ? swn_serve_party_due(party) : now;
        say();
    }
    assert_true(swn_serve_party_bytes(party, CAP) == 30 * MIB);
    listen_again();
    now = swn_serve_party_due(party);
    say();
    accept_peer();
    assert_int_equal(hear().op, SWN_WIRE_HELLO);
}

/* What the server writes to standard error while it looks for a daemon. */
static const char *said_while_opening(void)
{
    static char text[2048];
    FILE *file = tmpfile();
    int before = dup(STDERR_FILENO);

    assert_non_null(file);
    assert_true(dup2(fileno(file), STDERR_FILENO) >= 0);
    int rc = open_party(NULL);
    dup2(before, STDERR_FILENO);
    close(before);
    assert_int_equal(rc, 0);
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    return text;
}

/* As a server of another user finds root's daemon that has no group. */
static void test_daemon_that_it_may_not_use_is_named(void **state)
{
    (void)state;
    int is_root = geteuid() == 0;
    assert_int_equal(fcntl(listener, F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(chmod(runtime, 0755) || chmod(folder, 0755) || chmod(path, is_root ? 0600 : 0), 0);
    assert_int_equal(is_root ? seteuid(65534) : 0, 0);
    const char *said = said_while_opening();
    assert_int_equal(is_root ? seteuid(0) : 0, 0);
    assert_null(party);
    assert_non_null(strstr(said, path));
    assert_non_null(strstr(said, "outside its total"));
    assert_ptr_equal(strchr(said, '\n'), said + strlen(said) - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_nothing_rules_without_a_daemon, begin, end),
        cmocka_unit_test_setup_teardown(test_registers_with_what_it_needs_and_confirms, begin, end),
        cmocka_unit_test_setup_teardown(test_begin_waits_for_a_lease_and_not_for_ever, begin, end),
        cmocka_unit_test_setup_teardown(test_smaller_lease_is_confirmed_when_the_engines_are_within, begin, end),
        cmocka_unit_test_setup_teardown(test_lease_below_what_engines_can_do_without_is_refused, begin, end),
        cmocka_unit_test_setup_teardown(test_reports_changes_that_matter, begin, end),
        cmocka_unit_test_setup_teardown(test_lease_outlives_the_daemon, begin, end),
        cmocka_unit_test_setup_teardown(test_goes_on_alone_when_no_daemon_comes, begin, end),
        cmocka_unit_test_setup_teardown(test_daemon_that_is_named_is_waited_for, begin, end),
        cmocka_unit_test_setup_teardown(test_daemon_that_it_may_not_use_is_named, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
