/* Description: weights that come and go on a device, on stand-ins for every kind of device: an operator finds its
 * weights there and right, whatever is launched runs to its end on the bytes that it was given, the room is kept to,
 * what is needed next is there before it is asked for, and a weight that is not there can be read by nobody. */
/* wraps: swn_threads_many */
#define _GNU_SOURCE
#include "tests/unit/support/swapped_weights.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/thread.h"

static int second_thread;
int __wrap_swn_threads_many(void);
int __wrap_swn_threads_many(void)
{
    return second_thread;
}

/* A program that leaves time between its operators finds what comes next there already, once it has been through. */
static void ahead(void *device)
{
    begin(device);
    give_all();
    for (int i = 0; i < 3; i++)
        pass();
    /* Again where the machine was busy with others. */
    unsigned hits = 0, come_and_go = 0;
    for (int tries = 0; tries < 5 && 3 * hits < 2 * come_and_go + 1; tries++) {
        hits = come_and_go = 0;
        for (unsigned i = 0; i < WEIGHTS; i++) {
            uint64_t stall = counters().device_stall_ns;
            CHECK(!read_on(i, stream, 10));
            come_and_go += swn_device_swaps(held[i]) != 0;
            hits += swn_device_swaps(held[i]) && counters().device_stall_ns == stall;
            wait_for_quiet();
        }
    }
    CHECK(3 * hits >= 2 * come_and_go); /* less than a third of them has room at once */
    cudaDeviceSynchronize();
    take_all();
}

/* More weights than there is room for, over and over. */
static void swapped(void *device)
{
    begin(device);
    unsigned come_and_go = give_all();
    CHECK(come_and_go > 4 && (come_and_go == WEIGHTS) == is_card(device));
    for (int i = 0; i < 4; i++)
        pass();
    struct swn_stats before = counters();
    pass();
    struct swn_stats s = counters();
    CHECK(s.device_swap_ins > before.device_swap_ins);
    CHECK(s.device_swapped_bytes > 4 * MIB);
    CHECK(s.device_peak_bytes <= (is_card(device) ? MAPPED_BUDGET : 3 * MIB));
    CHECK(s.over_budget_bytes == 0);
    if (is_card(device)) /* what was put there is not read again in every pass */
        CHECK(s.device_swap_ins - before.device_swap_ins < WEIGHTS / 2);
    cudaDeviceSynchronize();
    take_all();
    settle();
    CHECK(counters().device_resident_bytes == 0);
    CHECK(standin_live(STANDIN_RESERVED) + standin_live(STANDIN_PHYSICAL) + standin_live(STANDIN_MANAGED) == 0);
}

/* What the stand-in says when a child that breaks a rule is ended by it. */
static void broken_by(void (*child)(void *device, int to), void *device, char *said, size_t room)
{
    int words[2];
    CHECK(!pipe(words));
    pid_t pid = fork();
    if (!pid) {
        child(device, words[1]);
        _exit(0);
    }
    close(words[1]);
    memset(said, 0, room);
    size_t n = 0;
    for (ssize_t got; n < room - 1 && (got = read(words[0], said + n, room - 1 - n)) > 0;)
        n += (size_t)got;
    close(words[0]);
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status != 0);
}

/* Layers of many sizes: once there are buffers for all, the driver is not asked for others, nor given any back, as it
 * would stop the device for that; and the room is kept to. */
static void mixed(void *device)
{
    static const size_t sizes[] = {3 * MIB, 300000, 1200000, 700000, 2 * MIB + 5000, 300000, 900000};
    begin_with(device, 24 * MIB, 16 * MIB, sizes, sizeof sizes / sizeof sizes[0]);
    CHECK(give_all() > WEIGHTS / 2);
    for (int i = 0; i < 5; i++)
        pass();
    unsigned changes = standin_changes();
    uint64_t swap_ins = counters().device_swap_ins;
    for (int i = 0; i < 5; i++)
        pass();
    CHECK(standin_changes() == changes);
    CHECK(counters().device_swap_ins > swap_ins + 5);
    CHECK(counters().device_kept_bytes == 0 && counters().over_budget_bytes == 0);
    CHECK(counters().device_peak_bytes <= (is_card(device) ? 16 * MIB : 9 * MIB));
    cudaDeviceSynchronize();
    take_all();
    settle();
    CHECK(standin_live(STANDIN_RESERVED) + standin_live(STANDIN_PHYSICAL) + standin_live(STANDIN_MANAGED) == 0);
}

/* Much memory is in few chunks, since each takes the driver a while. Where the first blocks took large ones alone, some
 * are made into small ones for others; that comes to rest, and nothing of the room is lost. */
static void chunks(void *device)
{
    static const size_t l = 8 * MIB, m = 6 * MIB - 5000,
                        sizes[] = {l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, m, m, m, m, m, m, m, m};
    begin_with(device, 200 * MIB, 128 * MIB, sizes, sizeof sizes / sizeof sizes[0]);
    for (unsigned i = 0; i < 16; i++)
        give(i);
    for (unsigned i = 0; i < 16; i++)
        CHECK(!read_on(i, stream, 100));
    CHECK(standin_live(STANDIN_PHYSICAL) == 32);
    for (unsigned i = 16; i < WEIGHTS; i++)
        give(i);
    uint64_t swap_ins = counters().device_swap_ins;
    unsigned changes = 0, same = 0;
    for (int i = 0; i < 80 && same < 4; i++) {
        pass();
        same = standin_changes() == changes ? same + 1 : 0;
        changes = standin_changes();
    }
    CHECK(same == 4 && standin_live(STANDIN_PHYSICAL) > 32 && standin_live(STANDIN_PHYSICAL) < 64);
    CHECK(counters().device_swap_ins > swap_ins && counters().device_kept_bytes == 0);
    CHECK(counters().device_peak_bytes == 128 * MIB && counters().device_resident_bytes == 128 * MIB);
    cudaDeviceSynchronize();
    take_all();
    settle();
    CHECK(standin_live(STANDIN_RESERVED) + standin_live(STANDIN_PHYSICAL) == 0);
}

/* An operator that needs nearly all of the room has it, though small blocks were given large buffers before. */
static void moved_out(void *device)
{
    static const size_t l = 3 * MIB, m = MIB, t = 300000,
                        sizes[] = {m, m, m, m, m, m, m, m, l, t, t, t, l, t, t, t, l, t, t, t, l, t, t, t};
    begin_with(device, 18 * MIB, 16 * MIB, sizes, sizeof sizes / sizeof sizes[0]);
    give_all();
    const unsigned first = 8, last = WEIGHTS - 4;
    for (unsigned k = first; k < WEIGHTS; k++)
        CHECK(swn_device_swaps(held[k]) || (k < last && k % 4));
    struct swn_device_memory *large[] = {held[first], held[first + 4], held[first + 8]};
    void *at[4];
    int in_graph;
    CHECK(!swn_device_begin(large, 3, stream, at, &in_graph)); /* so are all buffers then */
    swn_device_end(large, 3, stream, in_graph);
    CHECK(!swn_device_begin(&held[last + 1], 3, stream, at, &in_graph)); /* small ones, which get these */
    swn_device_end(&held[last + 1], 3, stream, in_graph);
    CHECK(!swn_device_begin(&held[last], 4, stream, at, &in_graph));
    for (unsigned k = 0; k < 4; k++)
        CHECK(tensor_right(&weights[last + k], (uintptr_t)standin_view(at[k])));
    swn_device_end(&held[last], 4, stream, in_graph);
    CHECK(counters().device_peak_bytes <= 9 * MIB);
    cudaDeviceSynchronize();
    take_all();
}

static unsigned first_that_swaps(void)
{
    unsigned first = 0;
    while (!swn_device_swaps(held[first]))
        first++;
    return first;
}

/* Between two operators nobody can read it: not the processor, nor a kernel. */
static void reads_closed(void *device, int to)
{
    begin(device);
    give_all();
    pass();
    cudaDeviceSynchronize();
    unsigned first = first_that_swaps();
    for (unsigned i = first; is_card(device) && i < first + 12; i++)
        CHECK(!read_on(i, stream, 0)); /* by then the last ones are not there */
    signal(SIGABRT, SIG_DFL);
    const void *stretch = closed[WEIGHTS - 1];
    if (redirect_stderr(to))
        _exit(1);
    standin_launch(stream, 10, &stretch, &weights[0].len, 1);
    cudaDeviceSynchronize();
}

/* It is the stand-in that ends it. */
static void closed_faults(void *device)
{
    char said[512];
    broken_by(reads_closed, device, said, sizeof said);
    CHECK(strstr(said, is_card(device) ? ": a kernel reads device memory where none is mapped"
                                       : ": a kernel reads memory that the device does not know"));
}

/* Where the device follows the processor's page tables nothing has to come and go there, however many there are. */
static void pageable(void *device)
{
    begin(device);
    CHECK(give_all() == 0);
    for (int i = 0; i < 3; i++)
        pass();
    CHECK(counters().device_swap_ins == 0 && counters().device_resident_bytes == 0);
    CHECK(counters().spilled_bytes > 0 && counters().over_budget_bytes == 0);
    cudaDeviceSynchronize();
    take_all();
}

/* With a second thread, which could keep an address, blocks have their own where that can be; else none is lent. */
static void beside_a_thread(void *device)
{
    static const size_t size = WEIGHT_BYTES;
    second_thread = 1;
    begin_with(device, 24 * MIB, 0, &size, 1);
    unsigned come_and_go = give_all(), told = 0;
    CHECK(come_and_go > 4);
    for (int n = 0; n < 3; n++)
        for (unsigned i = 0; i < WEIGHTS; i++)
            told += read_on(i, stream, 100) != 0;
    CHECK(told == (strcmp(device, "orin") ? 3 * come_and_go : 0));
    CHECK((standin_live(STANDIN_RESERVED) > 0) == !strcmp(device, "orin"));
    CHECK(counters().over_budget_bytes == 0);
    cudaDeviceSynchronize();
    take_all();
}

/* Two streams, of which one is far behind: neither's kernels lose what they read. */
static void streams(void *device)
{
    begin(device);
    give_all();
    for (unsigned n = 0; n < 2 * WEIGHTS; n++) {
        CHECK(!read_on(n % WEIGHTS, stream, 300));
        CHECK(!read_on((n * 7 + 3) % WEIGHTS, (void *)0x20, 3000));
    }
    cudaDeviceSynchronize();
    take_all();
}

static void on_kernel_fault(int sig, siginfo_t *info, void *context)
{
    static const char text[] = "standin: memory is unmapped under a kernel that reads it\n";
    (void)sig, (void)context;
    if (info->si_code > 0 && swn_engine_trap((uintptr_t)info->si_addr))
        return;
    if (standin_kernel_reads() && write(STDERR_FILENO, text, sizeof text - 1) > 0)
        _exit(1);
    abort();
}

static void passes_elsewhere(void *device, int to)
{
    struct sigaction act = {.sa_sigaction = on_kernel_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
    begin(device);
    give_all();
    signal(SIGABRT, SIG_DFL);
    sigaction(SIGSEGV, &act, NULL);
    sigaction(SIGBUS, &act, NULL);
    setenv("STANDIN_EVENTS_ELSEWHERE", "1", 1);
    if (redirect_stderr(to))
        _exit(1);
    for (unsigned n = 0; n < 2 * WEIGHTS; n++)
        read_on(n % WEIGHTS, stream, 20000);
    cudaDeviceSynchronize();
}

/* A block's event on another stream than its operator's says nothing: were it recorded there, a kernel would be found
 * to have lost what it reads. */
static void events_elsewhere(void *device)
{
    char said[512];
    broken_by(passes_elsewhere, device, said, sizeof said);
    CHECK(strstr(said, "ThreadSanitizer: data race") || strstr(said, ": memory changed") ||
          strstr(said, "where none is mapped") ||
          strstr(said, ": a kernel reads managed memory that is attached to the host") ||
          strstr(said, ": registered memory is behind other pages") || /* is filled while the two are compared */
          strstr(said, ": memory is unmapped under a kernel"));        /* after it was found mapped */
}

/* An operator that needs more than there is room for: refused at once, and nothing is lent. */
static void too_many(void *device)
{
    begin(device);
    give_all();
    void *at[WEIGHTS];
    int captured;
    unsigned first = first_that_swaps();
    uint64_t began = swn_now_ns();
    CHECK(swn_device_begin(&held[first], WEIGHTS - first, stream, at, &captured) != 0);
    CHECK(swn_now_ns() - began < 5000000000u);
    pass();
    cudaDeviceSynchronize();
    take_all();
}

/* What is put into a graph stays where the graph has it. */
static void captured(void *device)
{
    begin(device);
    give_all();
    pass();
    void *at, *again;
    int in_graph;
    standin_capture(stream, 1);
    CHECK(!swn_device_begin(&held[WEIGHTS - 1], 1, stream, &at, &in_graph) && in_graph);
    swn_device_end(&held[WEIGHTS - 1], 1, stream, in_graph);
    standin_capture(stream, 0);
    for (int i = 0; i < 3; i++)
        pass();
    CHECK(tensor_right(&weights[WEIGHTS - 1], (uintptr_t)standin_view(at)));
    CHECK(!swn_device_begin(&held[WEIGHTS - 1], 1, stream, &again, &in_graph) && !in_graph && again == at);
    swn_device_end(&held[WEIGHTS - 1], 1, stream, in_graph);
    cudaDeviceSynchronize();
}

/* Of one operator, or of many. */
static void capture(unsigned first, void **at, int together)
{
    int in_graph;
    CHECK(!standin_capture(stream, 1));
    for (unsigned i = first; i < WEIGHTS; i += together ? WEIGHTS : 1) {
        unsigned n = together ? WEIGHTS - first : 1;
        CHECK(!swn_device_begin(&held[i], n, stream, &at[i], &in_graph) && in_graph);
        swn_device_end(&held[i], n, stream, in_graph);
    }
    CHECK(!standin_capture(stream, 0));
}

/* A graph that uses more than there is room for has all of it, for as long as it lives, and no longer. */
static void captured_all(void *device)
{
    begin(device);
    give_all();
    unsigned first = first_that_swaps();
    void *at[WEIGHTS];
    size_t room = is_card(device) ? MAPPED_BUDGET : 3 * MIB;
    for (int together = 0; together < 2; together++) {
        capture(first, at, together);
        for (unsigned i = first; i < WEIGHTS; i++)
            CHECK(tensor_right(&weights[i], (uintptr_t)standin_view(at[i])));
        CHECK(counters().device_resident_bytes > room && counters().device_kept_bytes > 0);
        for (unsigned i = first; i < WEIGHTS; i++)
            CHECK(!read_on(i, stream, 10));
        const void *stretch = at[first]; /* the graph runs, and its weights go meanwhile */
        standin_launch(stream, 50000, &stretch, &weights[first].len, 1);
        for (unsigned i = first; i < WEIGHTS; i++) {
            CHECK(!device_let_go(held[i]));
            held[i] = NULL;
        }
        settle();
        CHECK(counters().device_resident_bytes == 0);
        for (unsigned i = first; i < WEIGHTS; i++)
            give(i);
        first = first_that_swaps();
    }
    cudaDeviceSynchronize();
    take_all();
}

/* Where a weight stays that a graph has, and no other does. */
static void stays(void *device)
{
    begin(device);
    give_all();
    unsigned first = first_that_swaps();
    void *at[WEIGHTS];
    CHECK(!swn_device_stays(held[first]));
    capture(WEIGHTS - 1, at, 1);
    CHECK(swn_device_stays(held[WEIGHTS - 1]) == at[WEIGHTS - 1] && !swn_device_stays(held[first]));
    pass();
    cudaDeviceSynchronize();
    CHECK(swn_device_stays(held[WEIGHTS - 1]) == at[WEIGHTS - 1]);
    take_all();
}

/* Nobody waits for the device while something is being captured. */
static void buried_in_a_capture(void *device)
{
    begin(device);
    give_all();
    unsigned last = WEIGHTS - 1;
    void *at[WEIGHTS];
    capture(last, at, 0);
    CHECK(!standin_capture(stream, 1));
    for (unsigned i = 0; i < WEIGHTS; i++) {
        if (!swn_device_swaps(held[i]))
            continue;
        CHECK(!device_let_go(held[i]));
        held[i] = NULL;
    }
    usleep(100000);
    CHECK(counters().device_resident_bytes > 0);
    CHECK(!standin_capture(stream, 0));
    settle();
    CHECK(counters().device_resident_bytes == 0);
    take_all();
}

/* Another thread's capture is none of our business: weights go to the device, and come and go there, beside it. */
static void opened_in_a_capture(void *device)
{
    begin(device);
    CHECK(!standin_capture((void *)0x30, 1));
    give_all();
    for (unsigned i = 0; i < WEIGHTS; i++)
        if (swn_device_swaps(held[i]))
            CHECK(!read_on(i, stream, 100));
    CHECK(!standin_capture((void *)0x30, 0));
    pass();
    cudaDeviceSynchronize();
    CHECK(cudaGetLastError() == 0);
    take_all();
}

/* Weights go while they are on their way, and in the middle of what was launched. */
static void removed(void *device)
{
    begin(device);
    give_all();
    for (unsigned n = 0; n < 40; n++) {
        unsigned i = n % WEIGHTS;
        CHECK(!read_on(i, stream, 200));
        unsigned gone = (i + 1 + n % 3) % WEIGHTS; /* what is read ahead just now */
        CHECK(!device_let_go(held[gone]));
        tensor_free(&weights[gone]);
        CHECK(tensor_make(&weights[gone], WEIGHT_BYTES, 1000 + n));
        give(gone);
    }
    cudaDeviceSynchronize();
    take_all();
}

static void repeated(void *device)
{
    begin(device);
    unsigned i = 0;
    for (; i < WEIGHTS && (!i || !swn_device_swaps(held[i - 1])); i++)
        give(i);
    struct swn_device_memory *one = held[i - 1];
    for (unsigned n = 0; n < 1000; n++) {
        CHECK(!device_let_go(one));
        give(i - 1);
        one = held[i - 1];
        CHECK(swn_device_swaps(one));
        if (n % 50 == 0)
            CHECK(!read_on(i - 1, stream, 10));
    }
    cudaDeviceSynchronize();
    take_all();
    settle();
    CHECK(standin_live(STANDIN_RESERVED) + standin_live(STANDIN_PHYSICAL) == 0);
}

/* The driver refuses now and then: an operator is told, or has its weights; nobody reads anything else. */
static void refused(void *device)
{
    begin(device);
    give_all();
    pass();
    unsigned told = 0;
    for (unsigned n = 0; n < 60; n++) {
        if (n % 3 == 0)
            standin_fail(1 + n % 5);
        told += read_on(n % WEIGHTS, stream, 50) != 0;
    }
    standin_fail(0);
    cudaDeviceSynchronize();
    CHECK(told < 60);
    take_all();
}

static void forked(void *device)
{
    begin(device);
    uint64_t small = counters().small_bytes;
    give_all();
    pass();
    swn_engine_prefork();
    pid_t pid = fork();
    if (!pid) {
        swn_engine_postfork_child();
        CHECK(counters().small_bytes == small && counters().device_resident_bytes == 0);
        void *at;
        int in_graph;
        unsigned last = WEIGHTS - 1;
        CHECK(tensor_right(&weights[last], weights[last].own));
        CHECK(swn_device_begin(&held[last], 1, stream, &at, &in_graph) == -ENODEV);
        CHECK(!device_let_go(held[last]));
        swn_device_follow_budget();
        _exit(0);
    }
    swn_engine_postfork_parent();
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    pass();
    cudaDeviceSynchronize();
    for (unsigned i = 0; i < WEIGHTS; i++)
        CHECK(!device_let_go(held[i]));
}

struct reader {
    unsigned first, seed;
    void *stream;
};

static void *read_many(void *reader)
{
    struct reader *r = reader;
    for (unsigned n = 0; n < 30; n++) {
        r->seed = r->seed * 1103515245u + 12345u;
        CHECK(!read_on(r->first + (r->seed >> 16) % (WEIGHTS - r->first), r->stream, 100));
    }
    return NULL;
}

/* Threads with streams of their own, and no more room than the two need at once. */
static void threads(void *device)
{
    begin(device);
    give_all();
    pthread_t thread[3];
    struct reader readers[3];
    for (unsigned i = 0; i < 3; i++) {
        readers[i] = (struct reader){.seed = i, .stream = (void *)(uintptr_t)(0x100 + i)};
        CHECK(!swn_thread_start(&thread[i], read_many, &readers[i]));
    }
    for (unsigned i = 0; i < 3; i++)
        pthread_join(thread[i], NULL);
    cudaDeviceSynchronize();
    take_all();
}

/* The room follows the budget: what a larger one has room for is not read any more, a smaller one is kept to. */
static void resized(void *device)
{
    begin(device);
    give_all();
    pass();
    struct swn_budget_change change;
    CHECK(!swn_engine_set_budget(40 * MIB, 5000, &change) && change.bound);
    for (int i = 0; i < 3; i++)
        pass();
    uint64_t swap_ins = counters().device_swap_ins;
    pass();
    CHECK(counters().device_swap_ins == swap_ins);
    CHECK(counters().device_resident_bytes > 3 * MIB);
    CHECK(!swn_engine_set_budget(SHARED_BUDGET, 10000, &change) && change.bound);
    CHECK(counters().resident_bytes <= SHARED_BUDGET);
    pass();
    CHECK(counters().device_resident_bytes <= 3 * MIB);
    CHECK(counters().device_swap_ins > swap_ins);
    CHECK(counters().over_budget_bytes == 0);
    cudaDeviceSynchronize();
    take_all();
}

/* Nobody could say when a miss would be: said once, and off. */
static void without_virtual_memory(void *device)
{
    standin_virtual(0);
    begin(device);
    CHECK(swn_device_way(0, weights[0].own, weights[0].len, 1) == SWN_WAY_COPY);
    take_all();
}

static const struct device_case cases[] = {
    {"swapped", swapped, "nano xavier orin discrete"},
    {"mixed", mixed, "nano xavier orin discrete"},
    {"chunks", chunks, "discrete"},
    {"moved_out", moved_out, "nano xavier"},
    {"ahead", ahead, "nano xavier orin discrete"},
    {"closed_faults", closed_faults, "nano xavier orin discrete"},
    {"beside_a_thread", beside_a_thread, "nano xavier orin"},
    {"pageable", pageable, "thor"},
    {"streams", streams, "nano orin discrete"},
    {"events_elsewhere", events_elsewhere, "nano xavier orin discrete"},
    {"too_many", too_many, "nano xavier orin discrete"},
    {"captured", captured, "nano xavier orin discrete"},
    {"captured_all", captured_all, "nano xavier orin discrete"},
    {"stays", stays, "nano xavier orin discrete"},
    {"buried_in_a_capture", buried_in_a_capture, "nano xavier orin discrete"},
    {"opened_in_a_capture", opened_in_a_capture, "nano xavier orin discrete"},
    {"removed", removed, "nano xavier orin discrete"},
    {"repeated", repeated, "orin discrete"},
    {"refused", refused, "nano xavier orin discrete"},
    {"forked", forked, "nano orin discrete"},
    {"threads", threads, "nano orin discrete"},
    {"resized", resized, "nano xavier orin"},
    {"without_virtual_memory", without_virtual_memory, "discrete"},
};

int main(void)
{
    return run_device_cases(cases, sizeof cases / sizeof cases[0]);
}
