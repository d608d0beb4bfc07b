/* Packets between swapnet-serve and an engine arrive as they were sent, and what is not well formed is refused. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "scheduler/protocol/engine_wire.h"

#define BUFFER 4096

static int ends[2];
static struct swn_engine_packet *packet;

static int open_sockets(void **state)
{
    (void)state;
    packet = swn_engine_packet_new();
    return packet && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0 ? 0 : -1;
}

static int close_sockets(void **state)
{
    (void)state;
    close(ends[0]);
    close(ends[1]);
    swn_engine_packet_free(packet);
    return 0;
}

static struct swn_wire_tensor image(void)
{
    return (struct swn_wire_tensor){
        .name = "x", .element = SWN_ELEMENT_FP32, .rank = 2, .shape = {3, 5}, .offset = 64, .bytes = 60};
}

static int sent(const struct swn_wire_tensor *tensors, unsigned inputs, unsigned outputs, const char *text,
                struct swn_engine_message *got, enum swn_engine_op op)
{
    struct swn_engine_message m = {
        .op = op, .request = 7, .inputs = inputs, .outputs = outputs, .tensors = tensors, .text = text};

    assert_int_equal(swn_engine_wire_send(ends[0], packet, &m), 0);
    return swn_engine_wire_receive(ends[1], packet, BUFFER, got);
}

static void test_message_arrives_as_sent(void **state)
{
    struct swn_wire_tensor t[2] = {image(), image()};
    struct swn_engine_message got;

    (void)state;
    strcpy(t[1].name, "y");
    assert_int_equal(sent(t, 1, 1, "what it says", &got, SWN_ENGINE_RUN), 1);
    assert_int_equal(got.request, 7);
    assert_int_equal(got.inputs, 1);
    assert_string_equal(got.tensors[1].name, "y");
    assert_memory_equal(&got.tensors[0], &t[0], sizeof t[0]);
    assert_string_equal(got.text, "what it says");
}

static void test_weights_of_groups_arrive_between_tensors_and_text(void **state)
{
    struct swn_wire_group groups[SWN_WIRE_GROUPS + 1] = {
        {.bytes = 0},
        {.bytes = 7,
         .in_memory = 7,
         .identity = 8,
         .dense = 7,
         .activation_bytes = 9,
         .state_bytes = 9,
         .alone_ns = 9,
         .joined_ns = {1, 2, 3, 4, 5}},
        {.bytes = UINT64_MAX, .in_memory = 3, .identity = UINT64_MAX, .dense = 9, .activation_bytes = UINT64_MAX}};
    struct swn_wire_tensor t = image();
    struct swn_engine_message got, m = {.op = SWN_ENGINE_RAN,
                                        .outputs = 1,
                                        .tensors = &t,
                                        .weighed = 3,
                                        .weights = groups,
                                        .reads = {.bytes = 5, .wait_ns = 6, .idle_bytes = 7},
                                        .is_stored = 1,
                                        .text = "text"};

    (void)state;
    assert_int_equal(swn_engine_wire_send(ends[0], packet, &m), 0);
    assert_int_equal(swn_engine_wire_receive(ends[1], packet, BUFFER, &got), 1);
    assert_int_equal(got.weighed, 3);
    assert_memory_equal(got.weights, groups, 3 * sizeof *groups);
    assert_memory_equal(&got.tensors[0], &t, sizeof t);
    assert_int_equal(got.reads.bytes, 5);
    assert_int_equal(got.reads.wait_ns, 6);
    assert_int_equal(got.reads.idle_bytes, 7);
    assert_int_equal(got.is_stored, 1);
    assert_string_equal(got.text, "text");
    groups[1].in_memory = 8; /* more than there is */
    assert_int_equal(swn_engine_wire_send(ends[0], packet, &m), 0);
    assert_int_equal(swn_engine_wire_receive(ends[1], packet, BUFFER, &got), -EPROTO);
    groups[1].in_memory = 7;
    groups[1].dense = 8;
    assert_int_equal(swn_engine_wire_send(ends[0], packet, &m), 0);
    assert_int_equal(swn_engine_wire_receive(ends[1], packet, BUFFER, &got), -EPROTO);
    groups[1].dense = 7;
    groups[1].state_bytes = 10; /* more than it takes meanwhile */
    assert_int_equal(swn_engine_wire_send(ends[0], packet, &m), 0);
    assert_int_equal(swn_engine_wire_receive(ends[1], packet, BUFFER, &got), -EPROTO);
    m.weighed = SWN_WIRE_GROUPS + 1;
    assert_int_equal(swn_engine_wire_send(ends[0], packet, &m), -EMSGSIZE);
}

static void test_places_arrive_behind_the_weights(void **state)
{
    struct swn_wire_place places[SWN_WIRE_PLACES + 1] = {{3, 1, UINT64_MAX}, {UINT32_MAX, UINT32_MAX, 0}, {0, 0, 7}};
    struct swn_wire_group group = {.bytes = 1, .in_memory = 1};
    struct swn_engine_message got,
        m = {.op = SWN_ENGINE_RAN, .weighed = 1, .weights = &group, .places = places, .text = "text"};

    (void)state;
    for (m.placed = 0; m.placed <= SWN_WIRE_PLACES; m.placed++) {
        assert_int_equal(swn_engine_wire_send(ends[0], packet, &m), 0);
        assert_int_equal(swn_engine_wire_receive(ends[1], packet, BUFFER, &got), 1);
        assert_int_equal(got.placed, m.placed);
        assert_memory_equal(got.places, places, m.placed * sizeof *places);
        assert_memory_equal(got.weights, &group, sizeof group);
        assert_string_equal(got.text, "text");
    }
    assert_int_equal(swn_engine_wire_send(ends[0], packet, &m), -EMSGSIZE);
    m.placed = 1;
    m.op = SWN_ENGINE_RUN; /* which nothing of other models is told of */
    assert_int_equal(swn_engine_wire_send(ends[0], packet, &m), 0);
    assert_int_equal(swn_engine_wire_receive(ends[1], packet, BUFFER, &got), -EPROTO);
}

static void test_steps_arrive_behind_the_weights(void **state)
{
    struct swn_wire_step steps[SWN_WIRE_STEPS + 1] = {{3, 1}, {UINT32_MAX, UINT32_MAX}, {0, 0}};
    struct swn_wire_group groups[2] = {{.bytes = 1, .in_memory = 1, .activation_bytes = 3, .state_bytes = 2},
                                       {.bytes = 2, .identity = 5, .dense = 1}};
    struct swn_wire_tensor t = image();
    struct swn_engine_message got, m = {.op = SWN_ENGINE_RUN,
                                        .inputs = 1,
                                        .tensors = &t,
                                        .weighed = 2,
                                        .weights = groups,
                                        .steps = steps,
                                        .text = "text"};

    (void)state;
    for (m.foretold = 0; m.foretold <= SWN_WIRE_STEPS; m.foretold++) {
        assert_int_equal(swn_engine_wire_send(ends[0], packet, &m), 0);
        assert_int_equal(swn_engine_wire_receive(ends[1], packet, BUFFER, &got), 1);
        assert_int_equal(got.foretold, m.foretold);
        assert_memory_equal(got.steps, steps, m.foretold * sizeof *steps);
        assert_memory_equal(got.weights, groups, sizeof groups);
        assert_string_equal(got.text, "text");
    }
    assert_int_equal(swn_engine_wire_send(ends[0], packet, &m), -EMSGSIZE);
    m.foretold = 1;
    m.op = SWN_ENGINE_RAN; /* which foretells nothing */
    assert_int_equal(swn_engine_wire_send(ends[0], packet, &m), 0);
    assert_int_equal(swn_engine_wire_receive(ends[1], packet, BUFFER, &got), -EPROTO);
}

static void test_what_is_said_of_joining_arrives(void **state)
{
    struct swn_engine_message got, m = {.op = SWN_ENGINE_LOAD, .batch_most = 12, .may_differ = 1, .text = "model.pt"};

    (void)state;
    assert_int_equal(swn_engine_wire_send(ends[0], packet, &m), 0);
    assert_int_equal(swn_engine_wire_receive(ends[1], packet, BUFFER, &got), 1);
    assert_int_equal(got.batch_most, 12);
    assert_int_equal(got.may_differ, 1);
    m = (struct swn_engine_message){.op = SWN_ENGINE_RAN, .following = SWN_WIRE_FOLLOWING, .joined = 32};
    assert_int_equal(swn_engine_wire_send(ends[0], packet, &m), 0);
    assert_int_equal(swn_engine_wire_receive(ends[1], packet, BUFFER, &got), 1);
    assert_int_equal(got.following, SWN_WIRE_FOLLOWING);
    assert_int_equal(got.joined, 32);
    for (int i = 0; i < 3; i++) {
        m = (struct swn_engine_message){.op = SWN_ENGINE_RUN};
        *(i == 0 ? &m.following : i == 1 ? &m.joined : &m.may_differ) = i == 1 ? SWN_WIRE_FOLLOWING + 2 : UINT32_MAX;
        assert_int_equal(swn_engine_wire_send(ends[0], packet, &m), 0);
        assert_int_equal(swn_engine_wire_receive(ends[1], packet, BUFFER, &got), -EPROTO);
    }
}

static void test_every_length_of_text_arrives(void **state)
{
    static char text[SWN_WIRE_ENGINE_TEXT + 1];
    struct swn_wire_tensor t[SWN_WIRE_TENSORS];
    struct swn_engine_message got, m = {.op = SWN_ENGINE_LOAD, .text = text, .tensors = t};

    (void)state;
    for (unsigned i = 0; i < SWN_WIRE_TENSORS; i++)
        t[i] = image();
    memset(text, 'a', SWN_WIRE_ENGINE_TEXT - 1);
    assert_int_equal(sent(t, SWN_WIRE_TENSORS, 0, text, &got, SWN_ENGINE_RUN), 1);
    assert_string_equal(got.text, text);
    text[SWN_WIRE_ENGINE_TEXT - 1] = 'a';
    assert_int_equal(swn_engine_wire_send(ends[0], packet, &m), -EMSGSIZE);
    text[0] = 0;
    m.inputs = SWN_WIRE_TENSORS;
    m.outputs = 1;
    assert_int_equal(swn_engine_wire_send(ends[0], packet, &m), -EMSGSIZE);
}

static void test_tensors_outside_the_buffer_are_refused(void **state)
{
    struct swn_engine_message got;
    struct swn_wire_tensor t = image();

    (void)state;
    t.offset = BUFFER - 60;
    assert_int_equal(sent(&t, 1, 0, "", &got, SWN_ENGINE_RUN), 1);
    t.offset = BUFFER - 59;
    assert_int_equal(sent(&t, 1, 0, "", &got, SWN_ENGINE_RUN), -EPROTO);
    t.offset = UINT64_MAX - 8;
    assert_int_equal(sent(&t, 1, 0, "", &got, SWN_ENGINE_RUN), -EPROTO);
}

static void test_outputs_that_lie_nowhere_may_be_larger_than_the_buffer(void **state)
{
    struct swn_engine_message got;
    struct swn_wire_tensor t = image();

    (void)state;
    t.offset = 0;
    t.shape[0] = BUFFER;
    t.bytes = UINT64_C(20) * BUFFER;
    assert_int_equal(sent(&t, 0, 1, "", &got, SWN_ENGINE_RAN), 1);
    assert_true(got.tensors[0].bytes == t.bytes);
    assert_int_equal(sent(&t, 0, 1, "", &got, SWN_ENGINE_RUN), -EPROTO);
    assert_int_equal(sent(&t, 0, 1, "", &got, SWN_ENGINE_STORED), -EPROTO);
    t.bytes++;
    assert_int_equal(sent(&t, 0, 1, "", &got, SWN_ENGINE_RAN), -EPROTO);
    t = image();
    t.offset = BUFFER;
    assert_int_equal(sent(&t, 0, 1, "", &got, SWN_ENGINE_RAN), 1); /* the room was too small for another output */
    t.offset = 0;
    t.element = SWN_ELEMENT_BYTES;
    t.bytes = UINT64_MAX;
    assert_int_equal(sent(&t, 0, 1, "", &got, SWN_ENGINE_RAN), -EPROTO);
    t.bytes = INT64_MAX;
    assert_int_equal(sent(&t, 0, 1, "", &got, SWN_ENGINE_RAN), 1);
}

static void test_sizes_that_lie_are_refused(void **state)
{
    struct swn_engine_message got;
    struct swn_wire_tensor t = image();

    (void)state;
    t.bytes = 56;
    assert_int_equal(sent(&t, 1, 0, "", &got, SWN_ENGINE_RUN), -EPROTO);
    t = image();
    t.shape[0] = -3;
    assert_int_equal(sent(&t, 1, 0, "", &got, SWN_ENGINE_RUN), -EPROTO);
    t = image();
    t.rank = SWN_WIRE_RANK + 1;
    assert_int_equal(sent(&t, 1, 0, "", &got, SWN_ENGINE_RUN), -EPROTO);
    t = image();
    t.shape[0] = t.shape[1] = INT64_MAX;
    assert_int_equal(sent(&t, 1, 0, "", &got, SWN_ENGINE_RUN), -EPROTO);
    t = image();
    t.element = SWN_ELEMENTS;
    assert_int_equal(sent(&t, 1, 0, "", &got, SWN_ENGINE_RUN), -EPROTO);
    t = image();
    memset(t.name, 'n', sizeof t.name);
    assert_int_equal(sent(&t, 1, 0, "", &got, SWN_ENGINE_RUN), -EPROTO);
}

static void test_unknown_dimensions_are_only_for_descriptions(void **state)
{
    struct swn_engine_message got;
    struct swn_wire_tensor t = image();

    (void)state;
    t.shape[0] = -1;
    assert_int_equal(sent(&t, 1, 0, "", &got, SWN_ENGINE_LOADED), 1);
    assert_int_equal(sent(&t, 1, 0, "", &got, SWN_ENGINE_RAN), -EPROTO);
    t.shape[0] = -2;
    assert_int_equal(sent(&t, 1, 0, "", &got, SWN_ENGINE_LOADED), -EPROTO);
}

static void test_strings_have_four_bytes_an_element(void **state)
{
    struct swn_engine_message got;
    struct swn_wire_tensor t = image();

    (void)state;
    t.element = SWN_ELEMENT_BYTES;
    t.bytes = 15 * 4;
    assert_int_equal(sent(&t, 1, 0, "", &got, SWN_ENGINE_RUN), 1);
    t.bytes++;
    assert_int_equal(sent(&t, 1, 0, "", &got, SWN_ENGINE_RUN), 1);
    t.bytes = 15 * 4 - 1;
    assert_int_equal(sent(&t, 1, 0, "", &got, SWN_ENGINE_RUN), -EPROTO);
}

static void test_damaged_packets_are_refused(void **state)
{
    struct swn_wire_tensor t = image();
    struct swn_engine_message got;
    char raw[1024], cut[1024];
    ssize_t n;

    (void)state;
    const struct swn_wire_step step = {1, 2};
    struct swn_engine_message m = {
        .op = SWN_ENGINE_RUN, .inputs = 1, .tensors = &t, .foretold = 1, .steps = &step, .text = "text"};
    assert_int_equal(swn_engine_wire_send(ends[0], packet, &m), 0);
    n = recv(ends[1], raw, sizeof raw, 0);
    assert_true(n > 100);
    for (ssize_t length = 1; length < n; length++) {
        assert_int_equal(send(ends[0], raw, (size_t)length, 0), length);
        assert_int_equal(swn_engine_wire_receive(ends[1], packet, BUFFER, &got), -EPROTO);
    }
    memcpy(cut, raw, (size_t)n);
    for (size_t at = 0; at < 8; at++) { /* magic and version */
        cut[at] = (char)~cut[at];
        assert_int_equal(send(ends[0], cut, (size_t)n, 0), n);
        assert_int_equal(swn_engine_wire_receive(ends[1], packet, BUFFER, &got), -EPROTO);
        cut[at] = raw[at];
    }
    cut[n - 2] = 0; /* text that ends early */
    assert_int_equal(send(ends[0], cut, (size_t)n, 0), n);
    assert_int_equal(swn_engine_wire_receive(ends[1], packet, BUFFER, &got), -EPROTO);
}

static void test_closed_end_is_told_from_an_empty_one(void **state)
{
    struct swn_engine_message got, m = {.op = SWN_ENGINE_DROP};

    (void)state;
    assert_int_equal(swn_engine_wire_receive(ends[1], packet, BUFFER, &got), -EAGAIN);
    close(ends[0]);
    ends[0] = -1;
    assert_int_equal(swn_engine_wire_receive(ends[1], packet, BUFFER, &got), 0);
    assert_int_equal(swn_engine_wire_send(ends[1], packet, &m), -EPIPE);
}

static void test_elements_have_names_and_sizes(void **state)
{
    (void)state;
    for (enum swn_element e = SWN_ELEMENT_NONE + 1; e < SWN_ELEMENTS; e++)
        assert_int_equal(swn_element_named(swn_element_name(e), strlen(swn_element_name(e))), e);
    assert_int_equal(swn_element_named("FP3", 3), SWN_ELEMENT_NONE);
    assert_int_equal(swn_element_bytes(SWN_ELEMENT_BF16), 2);
    assert_int_equal(swn_element_bytes(SWN_ELEMENT_BYTES), 0);
    assert_null(swn_element_name(SWN_ELEMENTS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_message_arrives_as_sent, open_sockets, close_sockets),
        cmocka_unit_test_setup_teardown(test_weights_of_groups_arrive_between_tensors_and_text, open_sockets,
                                        close_sockets),
        cmocka_unit_test_setup_teardown(test_steps_arrive_behind_the_weights, open_sockets, close_sockets),
        cmocka_unit_test_setup_teardown(test_places_arrive_behind_the_weights, open_sockets, close_sockets),
        cmocka_unit_test_setup_teardown(test_what_is_said_of_joining_arrives, open_sockets, close_sockets),
        cmocka_unit_test_setup_teardown(test_every_length_of_text_arrives, open_sockets, close_sockets),
        cmocka_unit_test_setup_teardown(test_tensors_outside_the_buffer_are_refused, open_sockets, close_sockets),
        cmocka_unit_test_setup_teardown(test_outputs_that_lie_nowhere_may_be_larger_than_the_buffer, open_sockets,
                                        close_sockets),
        cmocka_unit_test_setup_teardown(test_sizes_that_lie_are_refused, open_sockets, close_sockets),
        cmocka_unit_test_setup_teardown(test_unknown_dimensions_are_only_for_descriptions, open_sockets, close_sockets),
        cmocka_unit_test_setup_teardown(test_strings_have_four_bytes_an_element, open_sockets, close_sockets),
        cmocka_unit_test_setup_teardown(test_damaged_packets_are_refused, open_sockets, close_sockets),
        cmocka_unit_test_setup_teardown(test_closed_end_is_told_from_an_empty_one, open_sockets, close_sockets),
        cmocka_unit_test(test_elements_have_names_and_sizes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
