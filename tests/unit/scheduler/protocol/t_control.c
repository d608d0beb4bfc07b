/* Description: the status socket answers good requests and survives every other kind of client. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "scheduler/protocol/control.h"
#include "scheduler/protocol/control_io.h"

/* ThreadSanitizer cannot follow a thread that is started in a child forked from several threads. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNDER_TSAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define UNDER_TSAN 1
#endif
#ifndef UNDER_TSAN
#define UNDER_TSAN 0
#endif

static char base[32], directory[64];
static struct swn_control *control;

static void fill(void *user, struct swn_stats *out)
{
    out->pid = (uint64_t)getpid();
    out->budget_bytes = *(uint64_t *)user;
    out->name = "t_control";
    out->state = "running";
}

static uint64_t budget = 123;

static int begin(struct swn_control **out)
{
    struct swn_control_opts opts = {.fill = fill, .user = &budget, .runtime_dir = base};
    return swn_control_start(out, &opts);
}

static int make_base(void **state)
{
    (void)state;
    control = NULL;
    strcpy(base, "/tmp/t_control.XXXXXX");
    if (!mkdtemp(base))
        return -1;
    snprintf(directory, sizeof(directory), "%s/swapnet", base);
    return 0;
}

static int remove_base(void **state)
{
    (void)state;
    swn_control_stop(control);
    unlink(directory); /* where a test made it a link */
    rmdir(directory);
    return rmdir(base); /* fails when a socket was left behind */
}

static int make_control(void **state)
{
    return make_base(state) == 0 && begin(&control) == 0 ? 0 : -1;
}

static unsigned open_descriptors(void)
{
    unsigned n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static int64_t now_ms(void)
{
    return swn_control_now_ms();
}

static int dial(void)
{
    struct sockaddr_un sa;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(swn_control_address(&sa, swn_control_path(control)), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
    return fd;
}

/* Everything the server sends until it closes. A reset after the answer is how it drops what it did not read. */
static const char *drain(int fd)
{
    static char buf[4096];
    size_t have = 0;
    ssize_t n;
    while (have < sizeof(buf) - 1 && (n = recv(fd, buf + have, sizeof(buf) - 1 - have, 0)) > 0)
        have += (size_t)n;
    buf[have] = '\0';
    close(fd);
    return buf;
}

static void assert_status(void)
{
    char *text = NULL;
    assert_int_equal(swn_control_query(swn_control_path(control), "status", &text), 0);
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_int_equal(json_integer_value(json_object_get(root, "schema")), 1);
    assert_int_equal(json_integer_value(json_object_get(root, "pid")), getpid());
    assert_int_equal(json_integer_value(json_object_get(root, "budget_bytes")), 123);
    json_decref(root);
    free(text);
}

static void assert_error(const char *answer)
{
    assert_int_equal(answer[0] ? answer[strlen(answer) - 1] : 0, '\n');
    json_t *root = json_loads(answer, JSON_REJECT_DUPLICATES, NULL);
    assert_int_equal(json_object_size(root), 2);
    assert_int_equal(json_integer_value(json_object_get(root, "schema")), 1);
    assert_true(json_is_string(json_object_get(root, "error")));
    json_decref(root);
}

static const char *ask(const char *request, size_t len)
{
    int fd = dial();
    assert_int_equal(send(fd, request, len, MSG_NOSIGNAL), len);
    return drain(fd);
}

static void status(void **state)
{
    struct stat st;
    char expected[96];
    (void)state;
    snprintf(expected, sizeof(expected), "%s/%ld.sock", directory, (long)getpid());
    assert_string_equal(swn_control_path(control), expected);
    assert_int_equal(stat(directory, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(stat(expected, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    for (int i = 0; i < 50; i++)
        assert_status();
}

static void stop_removes_everything(void **state)
{
    unsigned before = open_descriptors();
    char path[PATH_MAX], *text = NULL;
    (void)state;
    for (int i = 0; i < 20; i++) {
        assert_int_equal(begin(&control), 0);
        if (i % 2)
            assert_status();
        strcpy(path, swn_control_path(control));
        swn_control_stop(control);
        control = NULL;
        assert_int_equal(access(path, F_OK), -1);
        assert_int_equal(swn_control_query(path, "status", &text), -ENOENT);
    }
    assert_int_equal(open_descriptors(), before);
}

/* A program that becomes a daemon closes what it did not open; the thread must not spin on what is left. */
static void closed_by_the_program(void **state)
{
    struct timespec before, after;
    (void)state;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 3; fd < 64; fd++) {
        struct stat st;
        int is_listening = 0;
        socklen_t len = sizeof is_listening;
        if (!fstat(fd, &st) && S_ISSOCK(st.st_mode) &&
            !getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &len) && is_listening)
            assert_int_equal(dup2(null, fd), fd);
    }
    char *text = NULL;
    (void)swn_control_query(swn_control_path(control), "status", &text); /* wakes it, if it still waits */
    free(text);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    usleep(300000);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    assert_true((after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000 < 100);
    close(null);
}

static void unknown_requests(void **state)
{
    static const char *const requests[] = {
        "\n",
        "{}\n",
        "[]\n",
        "{\"op\":1}\n",
        "{\"op\":\"set\"}\n",
        "status\n",
        "{\"op\":\n",
        "\"status\"\n",
        "{\"op\":\"status\",\"op\":\"status\"}\n",
        "\xff\xfe\x80\n",
        "{\"op\":\"status\"} x\n",
        "{\"op\":\"\\ud800\"}\n",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++)
        assert_error(ask(requests[i], strlen(requests[i])));
    assert_error(ask("{\"op\":\"status\"}\0x\n", 18));
    assert_status();
}

/* jansson's parser would need megabytes of stack for this. */
static void deep_nesting(void **state)
{
    static char request[60000];
    (void)state;
    memset(request, '[', sizeof(request));
    request[sizeof(request) - 1] = '\n';
    assert_error(ask(request, sizeof(request)));
    for (size_t i = 0; i + 6 < sizeof(request); i += 5)
        memcpy(request + i, "{\"a\":", 5);
    assert_error(ask(request, sizeof(request)));
    assert_status();
}

static void oversize(void **state)
{
    static char request[SWN_CONTROL_MAX_BYTES + 1];
    (void)state;
    memset(request, ' ', sizeof(request));
    memcpy(request, "{\"op\":\"status\"}", 15);
    request[SWN_CONTROL_MAX_BYTES - 1] = '\n'; /* exactly at the limit */
    const char *answer = ask(request, SWN_CONTROL_MAX_BYTES);
    assert_non_null(strstr(answer, "\"budget_bytes\":123"));
    request[SWN_CONTROL_MAX_BYTES - 1] = ' ';
    request[SWN_CONTROL_MAX_BYTES] = '\n';
    assert_error(ask(request, sizeof(request)));
    assert_status();
}

static void slow_client(void **state)
{
    (void)state;
    int fd = dial();
    int64_t start = now_ms(), cut = 0;
    while (now_ms() - start < 3000) {
        if (send(fd, " ", 1, MSG_NOSIGNAL) < 0) {
            cut = now_ms() - start;
            break;
        }
        nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
    }
    close(fd);
    assert_in_range(cut, 900, 2000);
    assert_status();
}

/* Silent, gone at once, or never reading its answer: each costs the next client a second at most. */
static void rude_clients(void **state)
{
    (void)state;
    int silent = dial();
    int64_t start = now_ms();
    int second = dial();
    assert_int_equal(send(second, "{\"op\":\"status\"}\n", 16, MSG_NOSIGNAL), 16);
    assert_non_null(strstr(drain(second), "t_control"));
    assert_in_range(now_ms() - start, 0, 2000);
    assert_string_equal(drain(silent), "");

    for (int i = 0; i < 200; i++) {
        int fd = dial();
        if (i % 2)
            assert_int_equal(send(fd, "{\"op\":\"status\"}\n", 16, MSG_NOSIGNAL), 16);
        close(fd);
    }
    assert_status();
}

/* Descriptors a client passes along must not pile up in the process. */
static void passed_descriptors(void **state)
{
    unsigned before = open_descriptors();
    (void)state;
    for (int i = 0; i < 20; i++) {
        union {
            struct cmsghdr head;
            char room[CMSG_SPACE(8 * sizeof(int))];
        } u;
        memset(&u, 0, sizeof(u));
        struct iovec iov = {.iov_base = "{\"op\":\"status\"}\n", .iov_len = 16};
        struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = u.room, .msg_controllen = sizeof(u.room)};
        u.head.cmsg_level = SOL_SOCKET;
        u.head.cmsg_type = SCM_RIGHTS;
        u.head.cmsg_len = CMSG_LEN(8 * sizeof(int));
        memset(CMSG_DATA(&u.head), 0, 8 * sizeof(int)); /* eight times standard input */
        int fd = dial();
        assert_int_equal(sendmsg(fd, &msg, MSG_NOSIGNAL), 16);
        assert_non_null(strstr(drain(fd), "t_control"));
    }
    assert_int_equal(open_descriptors(), before);
}

static void stop_does_not_wait_for_clients(void **state)
{
    (void)state;
    int fd = dial();
    assert_int_equal(send(fd, "{", 1, MSG_NOSIGNAL), 1);
    nanosleep(&(struct timespec){.tv_nsec = 50 * 1000 * 1000}, NULL); /* so that it is being served */
    int64_t start = now_ms();
    swn_control_stop(control);
    control = NULL;
    assert_in_range(now_ms() - start, 0, 500);
    close(fd);
}

static void reap(pid_t pid)
{
    int st = -1;
    assert_int_equal(waitpid(pid, &st, 0), pid);
    assert_int_equal(st, 0);
}

static void forked_child(void **state)
{
    (void)state;
    int fd = dial(); /* being served while we fork: the child must let go of it */
    nanosleep(&(struct timespec){.tv_nsec = 50 * 1000 * 1000}, NULL);
    int hold[2];
    assert_int_equal(pipe2(hold, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        char c;
        unsigned before = open_descriptors();
        swn_control_abandon(control);
        if (open_descriptors() != before - 4) /* listening socket, both ends of the bell, client */
            _exit(1);
        if (!UNDER_TSAN) { /* a child may open its own */
            if (begin(&control) != 0)
                _exit(2);
            swn_control_stop(control);
        }
        close(hold[1]);
        if (read(hold[0], &c, 1) < 0)
            _exit(3);
        _exit(0);
    }
    assert_int_equal(send(fd, "{\"op\":\"status\"}\n", 16, MSG_NOSIGNAL), 16);
    assert_non_null(strstr(drain(fd), "t_control")); /* ends although the child lives */
    close(hold[0]);
    close(hold[1]);
    reap(pid);
    assert_status();

    pid = fork();
    if (pid == 0) { /* an exit handler that knows nothing of the fork */
        swn_control_stop(control);
        _exit(0);
    }
    reap(pid);
    assert_status();
}

/* A process that died leaves its file; the next with its number takes the name over, but never that of a live socket.
 */
static void stale_socket(void **state)
{
    (void)state;
    struct sockaddr_un sa;
    char path[PATH_MAX], *text = NULL;
    assert_int_equal(begin(&control), 0);
    strcpy(path, swn_control_path(control));
    struct swn_control *second = NULL;
    assert_int_equal(begin(&second), -EADDRINUSE);
    assert_status();
    swn_control_stop(control);
    control = NULL;

    assert_int_equal(swn_control_address(&sa, path), 0);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
    close(fd);
    assert_int_equal(swn_control_query(path, "status", &text), -ECONNREFUSED);
    assert_int_equal(begin(&control), 0);
    assert_status();
    swn_control_stop(control);
    control = NULL;

    fd = open(path, O_CREAT | O_WRONLY, 0600); /* not a socket: not ours to remove */
    close(fd);
    assert_int_equal(begin(&second), -EADDRINUSE);
    assert_int_equal(unlink(path), 0);
}

static void directories(void **state)
{
    struct stat st;
    char elsewhere[64];
    (void)state;
    snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", base);
    assert_int_equal(mkdir(elsewhere, 0700), 0);
    assert_int_equal(symlink("elsewhere", directory), 0);
    assert_int_equal(begin(&control), -ELOOP);
    assert_int_equal(unlink(directory), 0);
    assert_int_equal(rmdir(elsewhere), 0);

    int fd = open(directory, O_CREAT | O_WRONLY, 0600);
    close(fd);
    assert_int_equal(begin(&control), -ENOTDIR);
    assert_int_equal(unlink(directory), 0);

    assert_int_equal(mkdir(directory, 0755), 0); /* ours but open: closed */
    assert_int_equal(begin(&control), 0);
    assert_int_equal(stat(directory, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_status();
    swn_control_stop(control);
    control = NULL;

    if (geteuid() == 0) {
        assert_int_equal(chown(directory, 12345, 12345), 0);
        assert_int_equal(begin(&control), -EPERM);
        assert_int_equal(chown(directory, 0, 0), 0);
    }

    char saved[sizeof(base)];
    strcpy(saved, base);
    strcpy(base, "/nonexistent");
    assert_int_equal(begin(&control), -ENOENT);
    strcpy(base, saved);

    struct swn_control_opts opts = {.fill = fill, .user = &budget};
    char buf[PATH_MAX], far[256];
    memset(far, 'x', sizeof(far) - 1);
    far[sizeof(far) - 1] = '\0';
    opts.runtime_dir = far;
    assert_int_equal(swn_control_start(&control, &opts), -ENOENT);

    assert_int_equal(setenv("XDG_RUNTIME_DIR", base, 1), 0);
    assert_int_equal(swn_control_directory(0, buf, sizeof(buf)), 0);
    assert_string_equal(buf, directory);
    assert_int_equal(swn_control_directory(1, buf, sizeof(buf)), 0);
    assert_string_equal(buf, "/run/swapnet");
    assert_int_equal(swn_control_directory(2, buf, sizeof(buf)), -ENOENT);
    opts.runtime_dir = NULL;
    assert_int_equal(swn_control_start(&control, &opts), 0);
    assert_status();
    assert_int_equal(unsetenv("XDG_RUNTIME_DIR"), 0);
    assert_int_equal(swn_control_directory(0, buf, sizeof(buf)), 0);
    assert_string_equal(buf, "/run/swapnet");
    assert_int_equal(swn_control_directory(1, buf, sizeof(buf)), -ENOENT);
}

/* Two other users: root is served, the other is not, whatever the modes say. Needs root to become them. */
static void other_users(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        print_message("skipped: needs root, to become other users\n");
        skip();
    }
    assert_int_equal(chmod(base, 0755), 0);
    assert_int_equal(chmod(directory, 0755), 0);
    assert_int_equal(chmod(swn_control_path(control), 0666), 0);
    pid_t pid = fork();
    if (pid == 0) {
        char *text = NULL;
        if (setgid(12345) != 0 || setuid(12345) != 0)
            _exit(1);
        int rc = swn_control_query(swn_control_path(control), "status", &text);
        _exit(rc == -EPROTO || rc == -ECONNRESET || rc == -EPIPE ? 0 : 2);
    }
    reap(pid);
    assert_status();
}

/* A server that accepts and says nothing, as a stopped process does. */
static void silent_server(void **state)
{
    struct sockaddr_un sa;
    char path[96], *text = NULL;
    (void)state;
    snprintf(path, sizeof(path), "%s/silent", base);
    assert_int_equal(swn_control_address(&sa, path), 0);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
    assert_int_equal(listen(fd, 0), 0);
    for (int i = 0; i < 3; i++) { /* the later ones find the backlog full */
        int64_t start = now_ms();
        assert_int_equal(swn_control_query(path, "status", &text), -ETIMEDOUT);
        assert_in_range(now_ms() - start, 900, 2000);
    }
    close(fd);
    unlink(path);
}

static char *own_document(void *user)
{
    return strdup(user);
}

/* A process may have a document of its own, longer than the ordinary one. */
static void document_of_its_own(void **state)
{
    size_t length = 3 * SWN_CONTROL_MAX_BYTES;
    char *text = malloc(length + 1), *answer = NULL;
    struct swn_control_opts opts = {.status = own_document, .user = text, .runtime_dir = base};
    (void)state;
    assert_non_null(text);
    memset(text, 'x', length);
    text[length] = '\0';
    assert_int_equal(swn_control_start(&control, &opts), 0);
    assert_int_equal(swn_control_query(swn_control_path(control), "status", &answer), -EMSGSIZE);
    assert_int_equal(swn_control_ask(swn_control_path(control), "{\"op\":\"status\"}", length + 2, NULL, &answer), 0);
    assert_string_equal(answer, text);
    swn_control_stop(control);
    control = NULL;
    free(answer);
    free(text);
}

static int held[2];
static uint64_t budgets_set[4];
static unsigned sets;

/* Like a process that is stopped: nothing is answered until the test lets it go on. */
static char *hold(void *user)
{
    char byte;
    (void)user;
    return read(held[0], &byte, 1) == 1 ? strdup("{}") : NULL;
}

static char *note_set(void *user, unsigned has, uint64_t bytes, double urgency)
{
    (void)user, (void)has, (void)urgency;
    budgets_set[sets++ % 4] = bytes;
    return strdup("{}");
}

/* Whoever asked has told the user that the process does not answer. One that only sends no more still waits. */
static void set_by_one_that_has_left(void **state)
{
    static const char status_request[] = "{\"op\":\"status\"}\n", one[] = "{\"op\":\"set\",\"budget\":16777216}\n",
                      other[] = "{\"op\":\"set\",\"budget\":33554432}\n";
    struct swn_control_opts opts = {.status = hold, .set = note_set, .runtime_dir = base};
    (void)state;
    assert_int_equal(pipe(held), 0);
    assert_int_equal(swn_control_start(&control, &opts), 0);
    int first = dial();
    assert_int_equal(send(first, status_request, strlen(status_request), MSG_NOSIGNAL), strlen(status_request));
    int left = dial();
    assert_int_equal(send(left, one, strlen(one), MSG_NOSIGNAL), strlen(one));
    close(left);
    int waits = dial();
    assert_int_equal(send(waits, other, strlen(other), MSG_NOSIGNAL), strlen(other));
    assert_int_equal(shutdown(waits, SHUT_WR), 0);
    assert_int_equal(write(held[1], "x", 1), 1);
    assert_string_equal(drain(first), "{}\n");
    assert_string_equal(drain(waits), "{}\n");
    assert_int_equal(sets, 1);
    assert_int_equal(budgets_set[0], 33554432);
    swn_control_stop(control);
    control = NULL;
    close(held[0]);
    close(held[1]);
}

#define LISTENERS 3

struct listener {
    char path[128];
    int fd;
};

/* Answers only once all of them have been asked; the second with many bytes. NULL: all went well. */
static void *answer_together(void *arg)
{
    struct listener *l = arg;
    int fd[LISTENERS];
    static char buf[100000];
    for (int i = 0; i < LISTENERS; i++) {
        fd[i] = accept4(l[i].fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd[i] < 0 || recv(fd[i], buf, sizeof buf, 0) <= 0 || strncmp(buf, "{\"op\":\"status\"}\n", 16) != 0)
            return l;
    }
    memset(buf, 'x', sizeof buf);
    for (int i = 0; i < LISTENERS; i++) {
        size_t length = i == 1 ? sizeof buf : (size_t)snprintf(buf, sizeof buf, "answer %d", i);
        ssize_t sent = send(fd[i], buf, length, MSG_NOSIGNAL);
        if (sent != (ssize_t)length || send(fd[i], "\n", 1, MSG_NOSIGNAL) != 1)
            return l;
        close(fd[i]);
        memset(buf, 'x', sizeof buf);
    }
    return NULL;
}

/* One after the other, each would wait for those behind it in vain. */
static void all_are_asked_at_once(void **state)
{
    (void)state;
    static struct listener l[LISTENERS];
    struct swn_control_call calls[LISTENERS + 1];
    pthread_t thread;
    for (int i = 0; i < LISTENERS; i++) {
        struct sockaddr_un sa;
        snprintf(l[i].path, sizeof l[i].path, "%s/%d.sock", base, i);
        assert_int_equal(swn_control_address(&sa, l[i].path), 0);
        l[i].fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(l[i].fd, (const struct sockaddr *)&sa, sizeof sa), 0);
        assert_int_equal(listen(l[i].fd, 1), 0);
        calls[i].path = l[i].path;
    }
    calls[LISTENERS].path = "/nonexistent/socket";
    assert_int_equal(pthread_create(&thread, NULL, answer_together, l), 0);
    swn_control_ask_all(calls, LISTENERS + 1, "{\"op\":\"status\"}", 1 << 20);
    void *failed;
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    for (int i = 0; i < LISTENERS; i++) {
        assert_int_equal(calls[i].rc, 0);
        assert_int_equal(calls[i].uid, geteuid());
        close(l[i].fd);
        unlink(l[i].path);
    }
    assert_string_equal(calls[0].answer, "answer 0");
    assert_int_equal(strlen(calls[1].answer), 100000);
    assert_string_equal(calls[2].answer, "answer 2");
    for (int i = 0; i < LISTENERS; i++)
        free(calls[i].answer);
    assert_int_equal(calls[LISTENERS].rc, -ENOENT);
    assert_null(calls[LISTENERS].answer);
}

#define WITH_CONTROL(f) cmocka_unit_test_setup_teardown(f, make_control, remove_base)
#define WITHOUT(f) cmocka_unit_test_setup_teardown(f, make_base, remove_base)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_CONTROL(status),
        WITHOUT(stop_removes_everything),
        WITH_CONTROL(closed_by_the_program),
        WITH_CONTROL(unknown_requests),
        WITH_CONTROL(deep_nesting),
        WITH_CONTROL(oversize),
        WITH_CONTROL(slow_client),
        WITH_CONTROL(rude_clients),
        WITH_CONTROL(passed_descriptors),
        WITH_CONTROL(stop_does_not_wait_for_clients),
        WITH_CONTROL(forked_child),
        WITHOUT(stale_socket),
        WITHOUT(directories),
        WITH_CONTROL(other_users),
        WITHOUT(silent_server),
        WITHOUT(all_are_asked_at_once),
        WITHOUT(document_of_its_own),
        WITHOUT(set_by_one_that_has_left),
    };
    alarm(120); /* a hang is a failure */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
