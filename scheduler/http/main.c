/* scheduler/http/main.c - swapnet-serve: puts the serving thread, which is the first one, and the HTTP side together.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/size.h"
#include "scheduler/protocol/preload.h"
#include "scheduler/protocol/systemd.h"
#include "scheduler/http/options.h"

/* Exit statuses, of which the unit of systemd tells apart what another start may cure (share/systemd). */
enum { FAILED = 1, WRONG_USAGE = 2, LACKS_SOMETHING = 3 };

#define ENGINE "swapnet-engine"
/* Besides connections: engines, the repository, what libraries open; and as many for connections that ask for
 * metrics. */
#define DESCRIPTORS 128
/* Free memory that stays: a request's state is 40 KiB, for which the kernel would else be asked again and again. */
#define TRIM_BYTES (2 << 20)

/* NULL where there is none. */
enum { PLAIN, WITH_TLS, METRICS, LISTENERS };
static struct swn_http *listeners[LISTENERS];
static atomic_uint inferring; /* with and without TLS: they are counted together */

static void tick(void *user)
{
    (void)user;
    for (int i = 0; i < LISTENERS; i++)
        if (listeners[i])
            swn_http_tick(listeners[i]);
}

static void quiesce(void *user)
{
    (void)user;
    for (int i = 0; i < LISTENERS; i++)
        if (listeners[i])
            swn_http_quiesce(listeners[i]);
}

static size_t requests(void *user)
{
    size_t n = 0;

    (void)user;
    for (int i = 0; i < LISTENERS; i++)
        n += listeners[i] ? swn_http_requests(listeners[i]) : 0;
    return n;
}

static size_t connections(void *user)
{
    size_t n = 0;

    (void)user;
    for (int i = 0; i < LISTENERS; i++)
        n += listeners[i] ? swn_http_connections(listeners[i]) : 0;
    return n;
}

/* As many connections as there are descriptors for. */
static void allow_descriptors(struct swn_serve_options *o)
{
    unsigned kinds = (o->has_http ? 1U : 0U) + (o->https_port ? 1U : 0U); /* as many connections of each */
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit))
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= kinds * o->http.connections + 2 * DESCRIPTORS)
        return;
    o->http.connections =
        limit.rlim_cur > 3 * DESCRIPTORS ? ((unsigned)limit.rlim_cur - 2 * DESCRIPTORS) / kinds : DESCRIPTORS;
    swn_serve_say("there are descriptors for %u connections only", o->http.connections);
}

/* What ends beside this program's own binary. */
static const char *beside(const char *name, char path[PATH_MAX])
{
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);
    char *slash;

    path[n < 0 ? 0 : n] = '\0';
    slash = strrchr(path, '/');
    if (!slash || (size_t)(slash + 1 - path) + strlen(name) >= PATH_MAX)
        return name;
    strcpy(slash + 1, name);
    return access(path, X_OK) ? name : path;
}

static int find_programs(struct swn_serve_options *o, char engine[PATH_MAX], char library[PATH_MAX])
{
    const char *wanted = o->library ? o->library : getenv("SWAPNET_LIBRARY");
    char why[SWN_ERRMSG];

    if (!o->serving.engine)
        o->serving.engine = beside(ENGINE, engine);
    if (wanted && !strcmp(wanted, "none"))
        return 0;
    if (swn_preload_find(wanted, library, why)) {
        swn_serve_say("%s", why);
        return -EINVAL;
    }
    o->serving.preload = library;
    return 0;
}

/* Listens. `said` is how the log calls it. */
static int start(int which, const struct swn_http_options *o, struct swn_serving *serving, const char *said)
{
    char why[SWN_ERRMSG];

    int rc = swn_http_start(&listeners[which], o, serving, why);
    if (rc) {
        swn_serve_say("%s", why);
        return rc == -EINVAL ? rc : -EIO;
    }
    swn_serve_say("%s on %s, port %u", said, *o->address ? o->address : "all addresses",
                  swn_http_port(listeners[which]));
    return 0;
}

/* A core dump would have the key. */
static int start_tls(const struct swn_serve_options *o, struct swn_http_options *http, struct swn_serving *serving)
{
    struct swn_tls_files files;
    char why[SWN_ERRMSG];
    int rc;

    if (swn_tls_files_read(&files, o->tls_cert, o->tls_key, why)) {
        swn_serve_say("%s", why);
        return -EINVAL;
    }
    prctl(PR_SET_DUMPABLE, 0);
    http->tls = &files;
    http->port = o->https_port;
    http->address = o->https_address ? o->https_address : o->http.address;
    rc = start(WITH_TLS, http, serving, "listening with TLS");
    http->tls = NULL;
    swn_tls_files_forget(&files);
    return rc;
}

/* 0; -EINVAL: a file that TLS needs is wrong; another -errno: it cannot listen. */
static int start_listeners(struct swn_serve_options *o, struct swn_serving *serving)
{
    struct swn_http_options http = o->http;
    int has_port = o->http.has_metrics && o->metrics_port &&
                   (strcmp(o->metrics_port, o->http.port) != 0 || !strcmp(o->metrics_port, "0"));

    http.inferring = &inferring;
    http.socket = swn_notify_socket();
    if (http.socket == -EINVAL)
        swn_serve_say("the sockets that were handed over are not one that listens; it makes its own");
    http.has_metrics &= !has_port;
    if (o->has_http) {
        if (start(PLAIN, &http, serving, "listening"))
            return -EIO;
        http.socket = -1;
    }
    int rc = o->https_port ? start_tls(o, &http, serving) : 0;
    if (rc)
        return rc;
    if (!has_port)
        return 0;
    http.socket = -1;
    http.has_metrics = 1;
    http.port = o->metrics_port;
    http.address = o->metrics_address ? o->metrics_address : o->http.address;
    http.is_for_metrics = 1;
    http.threads = 1;
    http.connections = DESCRIPTORS;
    return start(METRICS, &http, serving, "metrics");
}

int main(int argc, char **argv)
{
    static struct swn_serve_options o;
    static char engine[PATH_MAX], library[PATH_MAX];
    static struct swn_serving_hooks hooks = {NULL, tick, quiesce, requests, connections, 0};
    struct swn_serving *serving;
    char why[SWN_ERRMSG], mib[32];
    int rc = swn_serve_options_take(&o, argc, argv), status;

    if (rc)
        return rc == 1 ? 0 : WRONG_USAGE;
    mallopt(M_ARENA_MAX, 2); /* threads of the HTTP side give back what others took */
    mallopt(M_TRIM_THRESHOLD, TRIM_BYTES);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* beyond RLIMIT_FSIZE a write fails, here and in engines, which inherit this */
    signal(SIGCHLD, SIG_DFL); /* inherited as ignored, the kernel would reap engines itself */
    allow_descriptors(&o);
    if (find_programs(&o, engine, library))
        return LACKS_SOMETHING;
    rc = swn_serving_new(&serving, &o.serving, why);
    if (rc) {
        swn_serve_say("%s", why);
        return rc == -ENOMEM || rc == -EMFILE || rc == -ENFILE ? FAILED : LACKS_SOMETHING;
    }
    rc = start_listeners(&o, serving);
    status = rc == -EINVAL ? LACKS_SOMETHING : FAILED;
    if (rc == 0) {
        swn_serve_say("%s for models, requests and answers", swn_format_mib(mib, o.serving.memory_bytes));
        hooks.port = swn_http_port(listeners[o.has_http ? PLAIN : WITH_TLS]);
        swn_notify("READY=1\nSTATUS=Answering for models");
        status = swn_serving_run(serving, &hooks) ? FAILED : 0;
    }
    for (int i = 0; i < LISTENERS; i++)
        swn_http_stop(listeners[i]);
    swn_serving_free(serving);
    return status;
}
