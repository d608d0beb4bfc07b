/* Description: the library as a client of swapnetd, with this test as the daemon: it obeys, confirms, refuses, comes
 * back, and is never held up. */
#define _GNU_SOURCE
#include "tests/unit/support/engine_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "skeleton/budget/daemon_client.h"
#include "skeleton/budget/daemon_connect.h"
#include "base/process.h"
#include "base/thread.h"
#include "scheduler/protocol/wire.h"
#include "skeleton/engine/accounting.h"

#define WEIGHTS 40
#define WEIGHT_BYTES ((size_t)512 << 10)

static struct swn_engine *const e = &swn_engine_one;
static struct tensor weights[WEIGHTS];
static struct swn_config config;
static struct swn_lines lines;
static int listen_fd = -1, peer_fd = -1;

static void play_daemon(const char *name)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    CHECK(snprintf(config.daemon_path, sizeof config.daemon_path, "%s/%s", runtime, name) > 0);
    CHECK(strlen(config.daemon_path) < sizeof sa.sun_path);
    strcpy(sa.sun_path, config.daemon_path);
    listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bind(listen_fd, (struct sockaddr *)&sa, sizeof sa) == 0);
    CHECK(listen(listen_fd, 4) == 0);
}

static void tell(const char *text)
{
    CHECK(send(peer_fd, text, strlen(text), MSG_NOSIGNAL) == (ssize_t)strlen(text));
}

static void lease(uint64_t seq, uint64_t budget)
{
    char text[128];
    snprintf(text, sizeof text, "{\"op\":\"lease\",\"seq\":%llu,\"budget\":%llu}\n", (unsigned long long)seq,
             (unsigned long long)budget);
    tell(text);
}

static struct swn_wire *hear_any(void)
{
    static struct swn_wire m;
    char why[SWN_WIRE_TEXT], *line;
    size_t len;
    for (;;) {
        if ((line = swn_lines_next(&lines, &len))) {
            CHECK(swn_wire_decode(&m, line, len, why) == 0);
            return &m;
        }
        struct pollfd p = {.fd = peer_fd, .events = POLLIN};
        CHECK(poll(&p, 1, 20000) == 1);
        CHECK(swn_lines_fill(&lines, peer_fd, 0) > 0);
    }
}

/* The next message of that kind; others are passed over. */
static struct swn_wire *hear(enum swn_wire_op op)
{
    struct swn_wire *m;
    do
        m = hear_any();
    while (m->op != op);
    return m;
}

static struct swn_wire *accept_hello(void)
{
    struct pollfd p = {.fd = listen_fd, .events = POLLIN};
    CHECK(poll(&p, 1, 20000) == 1);
    if (peer_fd >= 0)
        close(peer_fd);
    swn_lines_free(&lines);
    peer_fd = accept(listen_fd, NULL, NULL);
    CHECK(peer_fd >= 0);
    struct swn_wire *m = hear(SWN_WIRE_HELLO);
    CHECK(m->version == SWN_WIRE_VERSION && m->has & SWN_HAS_LEASE && m->has & SWN_HAS_MINIMUM);
    return m;
}

static void begin(size_t budget)
{
    CHECK(engine_begin(budget, SWN_CONFIG_AUTO, NULL) == 0);
    config = e->config;
    play_daemon("d.sock");
    e->config = config; /* as the engine is started where there is a daemon */
    swn_lines_init(&lines);
    for (unsigned i = 0; i < WEIGHTS; i++)
        CHECK(tensor_make(&weights[i], WEIGHT_BYTES, i + 1));
    swn_client_start(&config); /* nobody answers yet: it must not wait for long */
}

static void pass(void)
{
    for (unsigned i = 0; i < WEIGHTS; i++)
        op_read(&weights[i]);
}

static uint64_t budget_now(void)
{
    struct swn_stats stats;
    swn_engine_stats(&stats);
    return stats.budget_bytes;
}

static void obeys_and_confirms(void *arg)
{
    (void)arg;
    begin(64 * MIB);
    struct swn_wire *m = accept_hello();
    CHECK(m->lease == 0 && m->cap == 64 * MIB && m->demand >= WEIGHTS * WEIGHT_BYTES);
    lease(1, 40 * MIB);
    m = hear(SWN_WIRE_ACK);
    CHECK(m->seq == 1 && m->budget == 40 * MIB && budget_now() == 40 * MIB);
    tell("rubbish\n{\"op\":\"dance\"}\n\n{\"op\":\"lease\"}\n");
    lease(2, 10 * MIB);
    m = hear(SWN_WIRE_ACK);
    CHECK(m->seq == 2 && m->resident <= 10 * MIB);
    for (unsigned i = 0; i < 8; i++)
        pass();
    CHECK(engine_counters().peak_resident <= 64 * MIB && swn_engine_resident(e) <= 10 * MIB);
    lease(3, 100 * MIB); /* more than the user allows */
    m = hear(SWN_WIRE_ACK);
    CHECK(m->seq == 3 && budget_now() == 64 * MIB);
    lease(4, 30 * MIB); /* two at once: the last one counts */
    lease(5, 20 * MIB);
    do
        m = hear(SWN_WIRE_ACK);
    while (m->seq != 5);
    CHECK(budget_now() == 20 * MIB);
}

static void refuses_with_its_minimum(void *arg)
{
    (void)arg;
    begin(64 * MIB);
    accept_hello();
    lease(1, 30 * MIB);
    hear(SWN_WIRE_ACK);
    lease(2, MIB);
    struct swn_wire *m = hear(SWN_WIRE_REFUSE);
    CHECK(m->seq == 2 && m->minimum >= 8 * MIB && m->lease == 30 * MIB);
    CHECK(budget_now() == 30 * MIB);
}

/* It took a smaller lease and is not within it yet, and now it can do with even less no more: what it says it holds is
 * what it may have. */
static void refuses_on_its_way_down(void *arg)
{
    (void)arg;
    struct tensor *used[WEIGHTS];
    enum swn_use uses[WEIGHTS];
    struct swn_op op;
    begin(64 * MIB);
    accept_hello();
    lease(1, 40 * MIB);
    hear(SWN_WIRE_ACK);
    for (unsigned i = 0; i < WEIGHTS; i++) {
        used[i] = &weights[i];
        uses[i] = SWN_USE_WRITE;
    }
    op_open(&op, used, uses, WEIGHTS); /* nothing of these 20 MiB can go now */
    lease(2, 12 * MIB);
    while (budget_now() != 12 * MIB)
        usleep(1000);
    pthread_mutex_lock(&e->lock);
    e->plan.planned = 1;
    e->nonweight.planned = 14 * MIB;
    pthread_mutex_unlock(&e->lock);
    lease(3, 9 * MIB);
    struct swn_wire *m = hear(SWN_WIRE_REFUSE);
    CHECK(m->seq == 3 && m->lease >= WEIGHTS * WEIGHT_BYTES && m->lease <= 40 * MIB);
    op_close(&op);
}

static int no_thread(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
    (void)thread;
    (void)attr;
    (void)fn;
    (void)arg;
    return EAGAIN;
}

/* Where the budget's thread cannot be had the program itself comes down, as it allocates: what it is not within yet is
 * not confirmed, and what it holds meanwhile is said. */
static void confirms_what_it_is_within(void *arg)
{
    (void)arg;
    struct tensor *used[WEIGHTS], more;
    enum swn_use uses[WEIGHTS];
    struct swn_op op;
    begin(64 * MIB);
    accept_hello();
    for (unsigned i = 0; i < WEIGHTS; i++) {
        used[i] = &weights[i];
        uses[i] = SWN_USE_WRITE;
    }
    op_open(&op, used, uses, WEIGHTS); /* 20 MiB */
    int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = swn_thread_create;
    swn_thread_create = no_thread;
    lease(1, 12 * MIB);
    while (budget_now() != 12 * MIB)
        usleep(1000);
    for (unsigned updates = 0; updates < 2;) { /* one a second, and before that whatever is new */
        struct swn_wire *m = hear_any();
        CHECK(m->op != SWN_WIRE_ACK);
        updates += m->op == SWN_WIRE_UPDATE && m->has == SWN_HAS_RESIDENT;
    }
    shutdown(peer_fd, SHUT_RDWR);
    CHECK(accept_hello()->lease >= WEIGHTS * WEIGHT_BYTES);
    lease(2, 11 * MIB);
    while (budget_now() != 11 * MIB)
        usleep(1000);
    swn_thread_create = create;
    op_close(&op);
    CHECK(tensor_make(&more, WEIGHT_BYTES, 99));
    struct swn_wire *m = hear(SWN_WIRE_ACK);
    CHECK(m->seq == 2 && m->resident <= 11 * MIB);
    pass();
}

/* Its own cap is below what it can do with, but the lease is not: it is obeyed, or both would say the same for ever. */
static void cap_below_its_minimum(void *arg)
{
    (void)arg;
    begin(64 * MIB);
    accept_hello();
    lease(1, 40 * MIB);
    hear(SWN_WIRE_ACK);
    pass();
    pthread_mutex_lock(&e->lock);
    e->plan.planned = 1;
    e->nonweight.planned = 20 * MIB;
    e->budget.user_cap = 10 * MIB;
    pthread_mutex_unlock(&e->lock);
    lease(2, 30 * MIB);
    struct swn_wire *m = hear(SWN_WIRE_ACK);
    CHECK(m->seq == 2 && m->budget <= 30 * MIB);
    CHECK(budget_now() >= 20 * MIB && budget_now() <= 30 * MIB);
    lease(3, 9 * MIB);
    CHECK(hear(SWN_WIRE_REFUSE)->lease == 30 * MIB);
}

static void comes_back_with_its_lease(void *arg)
{
    (void)arg;
    begin(64 * MIB);
    accept_hello();
    lease(1, 12 * MIB);
    hear(SWN_WIRE_ACK);
    for (int way = 0; way < 3; way++) {
        static char much[SWN_WIRE_MOST + 1];
        memset(much, 'x', sizeof much);
        if (way == 0)
            shutdown(peer_fd, SHUT_RDWR);
        else if (way == 1)
            (void)!send(peer_fd, much, sizeof much, MSG_NOSIGNAL);
        else
            tell("{\"op\":\"error\",\"text\":\"go away\"}\n");
        pass();
        CHECK(budget_now() == 12 * MIB);
        struct swn_wire *m = accept_hello();
        CHECK(m->lease == 12 * MIB);
    }
    /* The user's wish through the process's own socket goes to the daemon as well. */
    char *answer = swn_client_set(e, SWN_HAS_BUDGET | SWN_HAS_URGENCY, 10 * MIB, 3);
    CHECK(answer && strstr(answer, "\"bound\":true"));
    free(answer);
    struct swn_wire *m;
    do
        m = hear(SWN_WIRE_UPDATE);
    while (!(m->has & SWN_HAS_CAP) || m->cap != 10 * MIB);
    CHECK(m->urgency > 2.9 && m->urgency < 3.1);
    answer = swn_client_set(e, SWN_HAS_BUDGET, MIB, 0);
    CHECK(answer && strstr(answer, "at least"));
    free(answer);
    CHECK(budget_now() == 10 * MIB);
}

/* A daemon that is there and refuses, in words or without, is left alone for longer and longer, whatever else there is
 * to do; one that says yes in the end is heard. */
static void refused_and_patient(void *arg)
{
    (void)arg;
    int dials = 0;
    begin(64 * MIB);
    for (uint64_t end = swn_now_ns() + 800000000ull; swn_now_ns() < end;) {
        struct pollfd p = {.fd = listen_fd, .events = POLLIN};
        pthread_mutex_lock(&e->lock);
        swn_client_wake(e);
        pthread_mutex_unlock(&e->lock);
        if (poll(&p, 1, 1) != 1)
            continue;
        accept_hello();
        if (dials++ % 2)
            tell("{\"op\":\"error\",\"text\":\"swapnetd is draining: nobody new\"}\n");
        close(peer_fd);
        peer_fd = -1;
    }
    CHECK(dials >= 2 && dials <= 6); /* 50, 100, 200, 400 ms between them at least */
    accept_hello();
    lease(1, 12 * MIB);
    CHECK(hear(SWN_WIRE_ACK)->seq == 1);
}

static pid_t fork_engine(void)
{
    swn_engine_prefork();
    pid_t pid = fork();
    if (pid)
        swn_engine_postfork_parent();
    else
        swn_engine_postfork_child();
    return pid;
}

/* A child that touches no tensor has no connection, and its end does not end the parent's. */
static void fork_leaves_it_alone(void *arg)
{
    (void)arg;
    begin(64 * MIB);
    accept_hello();
    lease(1, 12 * MIB);
    hear(SWN_WIRE_ACK);
    for (int i = 0; i < 5; i++) {
        pid_t pid = fork_engine();
        if (!pid) {
            CHECK(!e->budget.client && budget_now() == 12 * MIB);
            _exit(0);
        }
        int status;
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    }
    lease(2, 20 * MIB);
    CHECK(hear(SWN_WIRE_ACK)->seq == 2);
    pass();
}

#ifndef __SANITIZE_THREAD__
static void come_to(uint64_t budget)
{
    struct tensor own;
    CHECK(tensor_make(&own, WEIGHT_BYTES, 99));
    struct swn_stats stats;
    alarm(30); /* it would outlive the test, and its reader would wait for it */
    do {
        usleep(1000);
        swn_engine_stats(&stats);
    } while (stats.budget_bytes != budget || strcmp(stats.state, "running"));
    pass();
    CHECK(tensor_right(&own, own.own));
    CHECK(swn_engine_resident(e) <= budget);
}

static void child_waits_for(uint64_t budget)
{
    come_to(budget);
    _exit(0);
}

static void wait_well(pid_t pid)
{
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

/* One that does is a process of its own: with a lease of its own, or with the minimum while it has none. */
static void child_is_a_process_of_its_own(void *arg)
{
    (void)arg;
    begin(64 * MIB);
    accept_hello();
    lease(1, 30 * MIB);
    hear(SWN_WIRE_ACK);
    pass();
    struct swn_lines parents = lines;
    int parent_fd = peer_fd;
    for (int answers = 0; answers < 2; answers++) {
        pid_t pid = fork_engine();
        if (!pid)
            child_waits_for(answers ? 16 * MIB : 8 * MIB);
        peer_fd = -1;
        swn_lines_init(&lines);
        struct swn_wire *m = accept_hello();
        CHECK(m->lease == 0 && m->cap == 64 * MIB);
        struct ucred who;
        socklen_t len = sizeof who;
        CHECK(getsockopt(peer_fd, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0 && who.pid == pid);
        if (answers) {
            lease(1, 16 * MIB);
            CHECK(hear(SWN_WIRE_ACK)->budget == 16 * MIB);
        }
        int status;
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
        close(peer_fd);
    }
    lines = parents;
    peer_fd = parent_fd;
    lease(2, 20 * MIB); /* the parent's is another matter */
    while (hear(SWN_WIRE_ACK)->seq != 2)
        ;
    CHECK(budget_now() == 20 * MIB);
    pass();
}

/* A child of a child: what there was for its parent, by a lease of its own or of before, is what there is for it once
 * no daemon is there any more. Not more, though nobody says so but the memory of the process. */
static void grandchild_has_what_there_was(void *arg)
{
    enum way { OWN_LEASE, NO_TENSORS, ALONE_ITSELF, WAYS };
    static const uint64_t budget[WAYS] = {16 * MIB, 30 * MIB, 30 * MIB};
    int go[2];
    (void)arg;
    begin(64 * MIB);
    swn_client_alone_ms = 400;
    CHECK(e->config.daemon == SWN_DAEMON_AUTO && pipe(go) == 0);
    accept_hello();
    lease(1, 30 * MIB);
    hear(SWN_WIRE_ACK);
    pass();
    int parents = peer_fd;
    peer_fd = -1;
    swn_lines_init(&lines);
    for (enum way way = 0; way < WAYS; way++) {
        pid_t child = fork_engine();
        if (!child) {
            char byte;
            close(parents); /* of the daemon that this test plays, which is not the child */
            close(listen_fd);
            if (way != NO_TENSORS)
                come_to(budget[way]);
            CHECK(read(go[0], &byte, 1) == 1);
            pid_t grandchild = fork_engine();
            if (!grandchild)
                child_waits_for(budget[way]);
            wait_well(grandchild);
            if (way == NO_TENSORS)
                CHECK(!e->budget.client && budget_now() == 30 * MIB);
            _exit(0);
        }
        if (way == OWN_LEASE) { /* before its own has come to anything, there is no daemon any more */
            accept_hello();
            lease(1, 16 * MIB);
            CHECK(hear(SWN_WIRE_ACK)->budget == 16 * MIB);
            close(peer_fd);
            close(listen_fd);
            close(parents);
            CHECK(unlink(e->config.daemon_path) == 0);
            peer_fd = listen_fd = -1;
        }
        CHECK(write(go[1], "", 1) == 1);
        wait_well(child);
    }
    CHECK(budget_now() == 30 * MIB);
    pass();
}

#endif

/* A program that turns into a daemon closes what it did not open, and opens files of its own under the same numbers. */
static void descriptors_that_were_closed(void *arg)
{
    (void)arg;
    char path[400];
    begin(64 * MIB);
    accept_hello();
    lease(1, 20 * MIB);
    hear(SWN_WIRE_ACK);
    pthread_mutex_lock(&e->lock); /* where its thread is not in the middle of a message */
    snprintf(path, sizeof path, "%s/theirs", getenv("XDG_RUNTIME_DIR"));
    int theirs = open(path, O_RDWR | O_CREAT, 0600);
    for (int fd = 3; fd < 64; fd++)
        if (fd != listen_fd && fd != peer_fd && fd != theirs && fcntl(fd, F_GETFD) >= 0) {
            char name[300] = "", link[64];
            snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
            if (readlink(link, name, sizeof name - 1) > 0 && (strstr(name, "socket:") || strstr(name, "eventfd")))
                CHECK(dup2(theirs, fd) == fd);
        }
    pthread_mutex_unlock(&e->lock);
    CHECK(accept_hello()->lease == 20 * MIB); /* comes back with another one */
    lease(2, 12 * MIB);
    CHECK(hear(SWN_WIRE_ACK)->seq == 2);
    pass();
    struct stat st;
    CHECK(fstat(theirs, &st) == 0 && st.st_size == 0);
}

/* Anybody may have put a socket into such a directory. */
static void strangers_are_not_asked(void *arg)
{
    (void)arg;
    CHECK(engine_begin(64 * MIB, SWN_CONFIG_AUTO, NULL) == 0);
    config = e->config;
    play_daemon("d.sock");
    CHECK(chmod(getenv("XDG_RUNTIME_DIR"), 0777) == 0);
    swn_client_start(&config);
    struct pollfd p = {.fd = listen_fd, .events = POLLIN};
    CHECK(poll(&p, 1, 1500) == 0);
}

static void put_record(const char *directory, pid_t pid, uint64_t start, uint64_t bytes, int whole)
{
    char path[400];
    snprintf(path, sizeof path, "%s/swapnetd.leases", directory);
    FILE *f = fopen(path, "w");
    CHECK(f);
    fprintf(f, "{\"schema\":1,\"leases\":[{\"pid\":%d,\"start\":%llu,\"lease_bytes\":%llu}]%s", pid,
            (unsigned long long)start, (unsigned long long)bytes, whole ? "}" : "");
    CHECK(fclose(f) == 0);
}

/* Its daemon was killed before it gave a lease. As long as another one lives that has one, what there is beside the
 * minimum may be that one's; a lease of its own, from before an exec, is nobody else's. */
static void newcomer_leaves_others_theirs(void *arg)
{
    (void)arg;
    char directory[300];
    uint64_t start;
    pid_t holder = fork();
    if (!holder) {
        alarm(60); /* it would outlive a test that fails */
        pause();
        _exit(0);
    }
    CHECK(engine_begin(8 * MIB, SWN_CONFIG_AUTO, NULL) == 0);
    snprintf(directory, sizeof directory, "%s/swapnet", getenv("XDG_RUNTIME_DIR"));
    CHECK(swn_process_start(holder, &start) == 0);
    put_record(directory, holder, start, 100 * MIB, 1);
    play_daemon("swapnet/swapnetd.sock");
    strcpy(e->config.daemon_path, config.daemon_path);
    close(listen_fd);
    swn_client_alone_ms = 200;
    e->budget.user_cap = 64 * MIB; /* the user's own */
    swn_client_start(&e->config);
    for (int i = 0; i < 12; i++) {
        usleep(100000);
        CHECK(budget_now() == 8 * MIB);
    }
    CHECK(kill(holder, SIGKILL) == 0 && waitpid(holder, NULL, 0) == holder);
    CHECK(swn_process_start(getpid(), &start) == 0);
    put_record(directory, getpid(), start, 100 * MIB, 1);
    while (budget_now() != 64 * MIB)
        usleep(1000);
}

static void which_daemon(void *arg)
{
    (void)arg;
    char directory[300], path[400];
    CHECK(engine_begin(64 * MIB, SWN_CONFIG_AUTO, NULL) == 0);
    snprintf(directory, sizeof directory, "%s/swapnet", getenv("XDG_RUNTIME_DIR"));
    config = (struct swn_config){.daemon = SWN_DAEMON_OFF};
    CHECK(swn_daemon_connect_find(&config) == -ENOENT);
    config = (struct swn_config){.daemon = SWN_DAEMON_PATH, .daemon_path = "/x/y.sock"};
    CHECK(swn_daemon_connect_find(&config) == 0 && !strcmp(config.daemon_path, "/x/y.sock"));
    play_daemon("swapnet/swapnetd.sock");
    strcpy(path, config.daemon_path);
    config = (struct swn_config){.daemon = SWN_DAEMON_AUTO};
    CHECK(swn_daemon_connect_find(&config) == 0 && !strcmp(config.daemon_path, path));
    CHECK(chmod(directory, 0777) == 0);
    config = (struct swn_config){.daemon = SWN_DAEMON_AUTO, .budget_bytes = 64 * MIB};
    CHECK(swn_daemon_connect_find(&config) == 0 && strcmp(config.daemon_path, path) != 0);
    CHECK(chmod(directory, 0700) == 0);
    close(listen_fd); /* dead: its file is no daemon */
    config = (struct swn_config){.daemon = SWN_DAEMON_AUTO, .budget_bytes = 64 * MIB};
    CHECK(swn_daemon_connect_find(&config) == 0 && strcmp(config.daemon_path, path) != 0);
    /* Unless a process with its lease lives: then there will be another daemon soon. */
    uint64_t start;
    CHECK(swn_process_start(getpid(), &start) == 0);
    for (unsigned way = 0; way < 4; way++) {
        put_record(directory, getpid(), way == 1 ? start + 1 : start, way == 2 ? 0 : MIB, way != 3);
        config = (struct swn_config){.daemon = SWN_DAEMON_AUTO, .budget_bytes = 64 * MIB};
        CHECK(swn_daemon_connect_find(&config) == 0 && (strcmp(config.daemon_path, path) == 0) == (way == 0));
    }
    /* And unless it was told to end. */
    put_record(directory, getpid(), start, MIB, 1);
    CHECK(strlen(directory) + sizeof "/swapnetd.stopped" <= sizeof path);
    sprintf(path, "%s/swapnetd.stopped", directory);
    close(open(path, O_WRONLY | O_CREAT, 0600));
    config = (struct swn_config){.daemon = SWN_DAEMON_AUTO, .budget_bytes = 64 * MIB};
    CHECK(swn_daemon_connect_find(&config) == 0 && !strstr(config.daemon_path, directory));
    CHECK(unlink(path) == 0);
    CHECK(swn_daemon_connect_find(&config) == 0 && strstr(config.daemon_path, directory));
}

IN_A_CHILD(obeys_and_confirms, 60)
IN_A_CHILD(refuses_with_its_minimum, 60)
IN_A_CHILD(refuses_on_its_way_down, 60)
IN_A_CHILD(confirms_what_it_is_within, 60)
IN_A_CHILD(cap_below_its_minimum, 60)
IN_A_CHILD(comes_back_with_its_lease, 60)
IN_A_CHILD(refused_and_patient, 60)
IN_A_CHILD(fork_leaves_it_alone, 60)
#ifndef __SANITIZE_THREAD__ /* which does not let a child start threads */
IN_A_CHILD(child_is_a_process_of_its_own, 60)
IN_A_CHILD(grandchild_has_what_there_was, 60)
#endif
IN_A_CHILD(descriptors_that_were_closed, 60)
IN_A_CHILD(strangers_are_not_asked, 60)
IN_A_CHILD(newcomer_leaves_others_theirs, 60)
IN_A_CHILD(which_daemon, 60)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_obeys_and_confirms),
        cmocka_unit_test(test_refuses_with_its_minimum),
        cmocka_unit_test(test_refuses_on_its_way_down),
        cmocka_unit_test(test_confirms_what_it_is_within),
        cmocka_unit_test(test_cap_below_its_minimum),
        cmocka_unit_test(test_comes_back_with_its_lease),
        cmocka_unit_test(test_refused_and_patient),
        cmocka_unit_test(test_fork_leaves_it_alone),
#ifndef __SANITIZE_THREAD__
        cmocka_unit_test(test_child_is_a_process_of_its_own),
        cmocka_unit_test(test_grandchild_has_what_there_was),
#endif
        cmocka_unit_test(test_descriptors_that_were_closed),
        cmocka_unit_test(test_strangers_are_not_asked),
        cmocka_unit_test(test_newcomer_leaves_others_theirs),
        cmocka_unit_test(test_which_daemon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
