/* scheduler/serve/main.c - swapnet-serve: puts the serving thread, which is the first one, and the HTTP side together.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/size.h"
#include "scheduler/protocol/preload.h"
#include "scheduler/protocol/systemd.h"
#include "scheduler/serve/options.h"

#define ENGINE "swapnet-engine"
/* Besides connections: engines, the repository, what libraries open; and as many for connections that ask for
 * metrics. */
#define DESCRIPTORS 128

static struct swn_http *https[2]; /* of all, of metrics; NULL where there is none */

static void tick(void *user)
{
    (void)user;
    for (int i = 0; i < 2; i++)
        if (https[i])
            swn_http_tick(https[i]);
}

static void quiesce(void *user)
{
    (void)user;
    for (int i = 0; i < 2; i++)
        if (https[i])
            swn_http_quiesce(https[i]);
}

static size_t requests(void *user)
{
    (void)user;
    return (https[0] ? swn_http_requests(https[0]) : 0) + (https[1] ? swn_http_requests(https[1]) : 0);
}

static size_t connections(void *user)
{
    (void)user;
    return (https[0] ? swn_http_connections(https[0]) : 0) + (https[1] ? swn_http_connections(https[1]) : 0);
}

/* As many connections as there are descriptors for. */
static void allow_descriptors(struct swn_serve_options *o)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit))
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= o->http.connections + 2 * DESCRIPTORS)
        return;
    o->http.connections = limit.rlim_cur > 3 * DESCRIPTORS ? (unsigned)limit.rlim_cur - 2 * DESCRIPTORS : DESCRIPTORS;
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

static int start_http(struct swn_serve_options *o, struct swn_serving *serving)
{
    struct swn_http_options metrics = o->http;
    char why[SWN_ERRMSG];
    int has_port = o->http.has_metrics && o->metrics_port &&
                   (strcmp(o->metrics_port, o->http.port) != 0 || !strcmp(o->metrics_port, "0"));

    o->http.socket = swn_notify_socket();
    if (o->http.socket == -EINVAL)
        swn_serve_say("the sockets that were handed over are not one that listens; it makes its own");
    o->http.has_metrics &= !has_port;
    if (swn_http_start(&https[0], &o->http, serving, why)) {
        swn_serve_say("%s", why);
        return -EIO;
    }
    swn_serve_say("listening on %s, port %u", *o->http.address ? o->http.address : "all addresses",
                  swn_http_port(https[0]));
    if (!has_port)
        return 0;
    metrics.socket = -1;
    metrics.port = o->metrics_port;
    metrics.address = o->metrics_address ? o->metrics_address : o->http.address;
    metrics.is_for_metrics = 1;
    metrics.threads = 1;
    metrics.connections = DESCRIPTORS;
    if (swn_http_start(&https[1], &metrics, serving, why)) {
        swn_serve_say("%s", why);
        return -EIO;
    }
    swn_serve_say("metrics on port %u", swn_http_port(https[1]));
    return 0;
}

int main(int argc, char **argv)
{
    static struct swn_serve_options o;
    static char engine[PATH_MAX], library[PATH_MAX];
    static const struct swn_serving_hooks hooks = {NULL, tick, quiesce, requests, connections};
    struct swn_serving *serving;
    char why[SWN_ERRMSG], mib[32];
    int rc = swn_serve_options_take(&o, argc, argv);

    if (rc)
        return rc == 1 ? 0 : 2;
    mallopt(M_ARENA_MAX, 2); /* threads of the HTTP side give back what others took */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD, SIG_DFL); /* inherited as ignored, the kernel would reap engines itself */
    allow_descriptors(&o);
    if (find_programs(&o, engine, library))
        return 1;
    if (swn_serving_new(&serving, &o.serving, why)) {
        swn_serve_say("%s", why);
        return 1;
    }
    rc = start_http(&o, serving);
    if (rc == 0) {
        swn_serve_say("%s for models, requests and answers", swn_format_mib(mib, o.serving.memory_bytes));
        swn_notify("READY=1\nSTATUS=Answering for models");
        rc = swn_serving_run(serving, &hooks);
    }
    for (int i = 0; i < 2; i++)
        swn_http_stop(https[i]);
    swn_serving_free(serving);
    return rc ? 1 : 0;
}
