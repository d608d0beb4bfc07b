/* tools/doctor/python.c - asks an interpreter for its PyTorch, and runs a small program of it under the library: what
 * that says is what other programs will meet. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/doctor/facts.h"

#include "base/clock.h"
#include "scheduler/protocol/preload.h"
#include "skeleton/abi/backend_file.h"

#define PATIENCE_NS (60 * UINT64_C(1000000000))
#define SAID_MOST ((size_t)64 << 10)
#define STATS_MOST ((size_t)1 << 20)

/* A torch.py in the working directory is not meant. */
#define NOT_HERE "import sys\nsys.path[:] = [p for p in sys.path if p]\n"

/* Importing PyTorch takes seconds; its version is in a file. A folder that an uninstalled one left is a package without
 * an origin. */
static const char ask[] =
    NOT_HERE "import importlib.util, os, re\n"
             "spec = importlib.util.find_spec('torch')\n"
             "text = spec and spec.origin and open(os.path.join(os.path.dirname(spec.origin), 'version.py')).read()\n"
             "found = text and re.search(r'''^__version__.*?['\"]([^'\"]+)''', text, re.M)\n"
             "print('\\nPyTorch', found[1] if found else '-')\n";

/* The sums are exact in float32: multiples of 2^20 below 2^24. */
static const char try[] =
    NOT_HERE "import torch\n"
             "all_of_it = [torch.full((1 << 20,), float(i)) for i in range(16)]\n"
             "right = all(float(t.sum()) == i << 20 for _ in range(2) for i, t in enumerate(all_of_it))\n"
             "print('\\nsums', 'right' if right else 'wrong')\n";

/* ---- when the doctor is told to end ---- */

/* What ends with it, set while the signals are blocked: the child, and the directory of its statistics. */
static struct {
    pid_t child;
    char dir[PATH_MAX], stats[PATH_MAX]; /* "": none */
} leaving;

static const int endings[] = {SIGINT, SIGTERM, SIGHUP};
#define ENDINGS (sizeof endings / sizeof *endings)

static void remove_directory(void)
{
    if (leaving.dir[0]) {
        unlink(leaving.stats);
        rmdir(leaving.dir);
    }
}

/* Whoever sees the status of the doctor sees which signal ended it. */
static void leave(int signal_number)
{
    if (leaving.child > 0) {
        kill(-leaving.child, SIGKILL);
        kill(leaving.child, SIGKILL); /* before it has a group of its own */
        waitpid(leaving.child, NULL, 0);
    }
    remove_directory();
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static void block_endings(sigset_t *before)
{
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < ENDINGS; i++)
        sigaddset(&set, endings[i]);
    sigprocmask(SIG_BLOCK, &set, before);
}

/* Ignored signals stay so, as under nohup. */
static void take_endings(void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler}, old;
    sigfillset(&action.sa_mask);
    for (size_t i = 0; i < ENDINGS; i++)
        if (sigaction(endings[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(endings[i], &action, NULL);
}

/* waitpid(child), after which the number may be another process's. */
static pid_t reap(pid_t child, int *status, int flags)
{
    sigset_t before;
    block_endings(&before);
    pid_t ended = waitpid(child, status, flags);
    if (ended)
        leaving.child = 0;
    sigprocmask(SIG_SETMASK, &before, NULL);
    return ended;
}

/* ---- a child with a time limit ---- */

struct child {
    pid_t pid;
    int output; /* its stdout and stderr */
};

/* In the child. `parent` is the doctor, with which it ends, however that ends. */
static void become(const char *python, const char *program, int output, pid_t parent, void (*prepare)(const void *),
                   const void *what)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(127);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    setpgid(0, 0);
    if (null < 0 || dup2(null, 0) < 0 || dup2(output, 1) < 0 || dup2(output, 2) < 0)
        _exit(127);
    if (prepare)
        prepare(what);
    execlp(python, python, "-c", program, NULL);
    fprintf(stderr, "%s\n", strerror(errno));
    _exit(127);
}

/* What the child says, up to `most` bytes; returns when it has closed its output, or the time is over. */
static size_t listen_to(const struct child *c, char *said, size_t most)
{
    uint64_t until = swn_now_ns() + PATIENCE_NS;
    size_t length = 0;
    char rest[4096];
    for (;;) {
        uint64_t now = swn_now_ns();
        struct pollfd p = {.fd = c->output, .events = POLLIN};
        int ready = now < until ? poll(&p, 1, (int)((until - now) / 1000000) + 1) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0)
            break;
        int full = length == most;
        ssize_t n = read(c->output, full ? rest : said + length, full ? sizeof rest : most - length);
        if (n <= 0 && !(n < 0 && errno == EINTR))
            break;
        length += full || n < 0 ? 0 : (size_t)n;
    }
    said[length] = 0;
    return length;
}

/* The status of `python -c program` as waitpid has it, or -errno: -ETIMEDOUT where it was killed. said[SAID_MOST + 1]
 * is what it said. */
static int run(const char *python, const char *program, char *said, void (*prepare)(const void *), const void *what)
{
    int ends[2], status = 0;
    said[0] = 0;
    if (pipe2(ends, O_CLOEXEC))
        return -errno;
    sigset_t before;
    pid_t doctor = getpid();
    block_endings(&before);
    struct child c = {.pid = fork(), .output = ends[0]};
    int rc = c.pid < 0 ? -errno : 0;
    if (c.pid)
        leaving.child = c.pid;
    else
        take_endings(SIG_DFL);
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (!c.pid)
        become(python, program, ends[1], doctor, prepare, what);
    close(ends[1]);
    if (!rc) {
        listen_to(&c, said, SAID_MOST);
        /* It has ended, or closed its output, or its time is over. */
        uint64_t until = swn_now_ns() + PATIENCE_NS / 60;
        pid_t ended;
        while (!(ended = reap(c.pid, &status, WNOHANG)) && swn_now_ns() < until)
            usleep(2000);
        if (!ended) {
            kill(-c.pid, SIGKILL);
            reap(c.pid, &status, 0);
            rc = -ETIMEDOUT;
        }
    }
    close(ends[0]);
    return rc ? rc : status;
}

/* The line of what it said that tells most: the library's, the loader's, or else the last one. */
static void best_line(char out[SWN_ERRMSG], char *said)
{
    char *best = NULL, *rest = said, *line;
    int rank = -1;
    while ((line = strtok_r(rest, "\n", &rest))) {
        int now = !strncmp(line, "swapnet: ", 9) ? 2 : strstr(line, "ld.so") || strstr(line, "loading shared") ? 1 : 0;
        if (now > rank || (now == rank && !rank)) {
            best = line;
            rank = now;
        }
    }
    swn_errmsg(out, 0, "%s", best ? best + (rank == 2 ? 9 : 0) : "");
}

/* What happened to a child that did not do what it was to. */
static void tell(char out[SWN_ERRMSG], int status, char *said)
{
    if (status == -ETIMEDOUT) {
        swn_errmsg(out, 0, "it took longer than a minute");
    } else if (status < 0) {
        swn_errmsg(out, 0, "%s", strerror(-status));
    } else {
        best_line(out, said);
        if (!out[0] && WIFSIGNALED(status))
            swn_errmsg(out, 0, "killed by signal %d", WTERMSIG(status));
        else if (!out[0])
            swn_errmsg(out, 0, "exit status %d", WEXITSTATUS(status));
    }
}

/* ---- with the library ---- */

/* In the child: the settings of the trial, and none of the user's but those that say how to read. */
static void prepare(const void *what)
{
    static const char *const kept[] = {"SWAPNET_STORE", "SWAPNET_FETCH", "SWAPNET_DISK"};
    const struct doctor_library *library = what;
    char name[256], *list = NULL;
    for (char **at = environ; *at;) {
        size_t length = strcspn(*at, "=");
        int is_kept = strncmp(*at, "SWAPNET", 7) != 0 || length >= sizeof name;
        for (unsigned i = 0; i < sizeof kept / sizeof *kept; i++)
            is_kept |= length == strlen(kept[i]) && !strncmp(*at, kept[i], length);
        if (is_kept) {
            at++;
            continue;
        }
        snprintf(name, sizeof name, "%.*s", (int)length, *at);
        unsetenv(name);
        at = environ;
    }
    if (swn_preload_list(library->path, getenv("LD_PRELOAD"), &list))
        _exit(127);
    if (list)
        setenv("LD_PRELOAD", list, 1);
    setenv("SWAPNET_BUDGET", "16M", 1);
    setenv("SWAPNET_DAEMON", "off", 1);
    setenv("SWAPNET_STATS", leaving.stats, 1);
}

/* Whether the library was there, by the statistics that it leaves; takes the way of reading from them. */
static int was_there(struct doctor_python *p, const char *stats)
{
    json_t *root = json_load_file(stats, 0, NULL);
    const char *path = json_string_value(json_object_get(root, "fetch_path"));
    int there = root && json_integer_value(json_object_get(root, "streamed_bytes")) > 0;
    snprintf(p->fetch_path, sizeof p->fetch_path, "%s", path ? path : "?");
    json_decref(root);
    return there;
}

/* mkdtemp, which a signal does not leave behind. Whether it is there. */
static int make_directory(char *name)
{
    sigset_t before;
    block_endings(&before);
    int there = mkdtemp(name) != NULL, reason = errno;
    if (there) {
        snprintf(leaving.stats, sizeof leaving.stats, "%.*s/stats", (int)(sizeof leaving.stats - sizeof "/stats"),
                 name);
        snprintf(leaving.dir, sizeof leaving.dir, "%s", name);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    errno = reason;
    return there;
}

static void try_program(struct doctor_python *p, const struct doctor_library *l, char *said)
{
    const char *tmp = getenv("TMPDIR");
    char dir[PATH_MAX];
    snprintf(dir, sizeof dir, "%s/swapnet-doctor-XXXXXX",
             tmp && *tmp == '/' && strlen(tmp) < PATH_MAX / 2 ? tmp : "/tmp");
    if (!make_directory(dir)) {
        swn_errmsg(p->said, 0, "cannot make a directory in /tmp: %s", strerror(errno));
        return;
    }
    int status = run(p->command, try, said, prepare, l);
    int right = status == 0 && strstr(said, "\nsums right\n") != NULL, wrong = strstr(said, "\nsums wrong\n") != NULL;
    p->tried = 1;
    p->right = right && was_there(p, leaving.stats);
    if (right && !p->right) { /* without the library, or with nothing for it to do */
        *strstr(said, "\nsums right\n") = 0;
        best_line(p->said, said);
        if (!p->said[0])
            swn_errmsg(p->said, 0, "the library did nothing in it");
    } else if (wrong) {
        swn_errmsg(p->said, 0, "its sums are wrong");
    } else if (!right) {
        tell(p->said, status, said);
    }
    remove_directory();
    leaving.dir[0] = 0;
}

/* With one kind of strings or the other: which PyTorch has is seen when the program is tried. */
static int is_there(const struct doctor_library *l, const char *version)
{
    char shipped[PATH_MAX + 16], name[64], path[2 * PATH_MAX], why[4 * PATH_MAX];
    snprintf(shipped, sizeof shipped, "%.*s/swapnet", (int)(strrchr(l->path, '/') - l->path), l->path);
    for (int old = 0; old < 2; old++)
        if (!swn_backend_name("aten", version, old, name, sizeof name) &&
            !swn_backend_find(shipped, environ, name, path, sizeof path, why, sizeof why))
            return 1;
    return 0;
}

static void look(struct doctor_python *p, const struct doctor_library *l)
{
    char program[PATH_MAX], *said = malloc(SAID_MOST + 1), *answer;
    unsigned major, minor;
    if (!said || swn_preload_program(p->command, program)) {
        swn_errmsg(p->why, 0, "%s", said ? "there is no such program" : strerror(ENOMEM));
        free(said);
        return;
    }
    if (!l->error && swn_preload_fits(l->path, program, p->why)) {
        free(said);
        return;
    }
    int status = run(p->command, ask, said, NULL, NULL);
    answer = status ? NULL : strstr(said, "\nPyTorch ");
    if (!answer)
        tell(p->why, status, said);
    else if (sscanf(answer, "\nPyTorch %63s", p->torch) != 1 || !strcmp(p->torch, "-"))
        p->torch[0] = 0;
    if (p->torch[0] && sscanf(p->torch, "%u.%u", &major, &minor) == 2) {
        snprintf(p->wanted, sizeof p->wanted, "%u.%u", major, minor);
        p->has_backend = !l->error && is_there(l, p->wanted);
    }
    if (p->has_backend)
        try_program(p, l, said);
    free(said);
}

void doctor_look_at_python(struct doctor_python *p, const struct doctor_library *l)
{
    take_endings(leave);
    look(p, l);
    take_endings(SIG_DFL);
}
