/* scheduler/http/options.c - one table for our options, Triton's that mean something here, and Triton's that do not.
 */
#define _GNU_SOURCE
#include "scheduler/http/options.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "scheduler/policies/server.h"
#include "scheduler/protocol/label.h"

#define MIB ((uint64_t)1 << 20)
#define MEMORY_LEAST (64 * MIB)
#define BUFFERS_LEAST (1 * MIB)
/* What swapnet-serve itself takes beside the buffers: its libraries and threads, and a thousand models of a few
 * tensors, with 10 KiB each; for each connection its headers, and what is known of it and of its request; for each
 * inference what is known of its tensors, or zlib's state. Where nothing else is asked for, connections and inferences
 * have these parts of the memory. */
#define FRONT_BYTES (16 * MIB)
#define CONNECTION_BYTES (UINT64_C(4) << 10)
#define CONNECTIONS_PART 16
#define TLS_BYTES (UINT64_C(64) << 10) /* of a connection with TLS besides */
#define INFERENCE_BYTES (UINT64_C(40) << 10)
#define INFERENCES_PART 32

static const char help[] =
    "Usage: swapnet-serve --model-repository DIR --memory SIZE [OPTION]...\n"
    "\n"
    "Answers for the models of a folder, over HTTP, within one memory budget.\n"
    "\n"
    "      --model-repository DIR    NAME/VERSION/model.pt; also --model-store\n"
    "      --memory SIZE             for weights, activations, requests and answers, e.g. 800M\n"
    "      --buffers SIZE            of that, for requests and answers (default: 64M, or an eighth)\n"
    "      --http-port PORT          (default: 8000; 0: any that is free)\n"
    "      --http-address ADDRESS    (default: 127.0.0.1; 0.0.0.0: all)\n"
    "      --https-port PORT         listen there with TLS, too; --https-address likewise\n"
    "      --tls-cert FILE, --tls-key FILE\n"
    "                                with --https-port: the certificate and its key, PEM\n"
    "      --allow-http BOOL         false: with TLS only (default: true)\n"
    "      --metrics-port PORT       /metrics there instead; --metrics-address likewise\n"
    "      --allow-metrics BOOL      false: no /metrics (default: true)\n"
    "      --model-control-mode MODE none (default): all models are loaded; explicit: when asked for\n"
    "      --load-model NAME         with explicit, at start; several times; '*': all\n"
    "      --strict-readiness BOOL   ready only when all models are (default: true)\n"
    "      --exit-timeout-secs N     for requests that are on their way (default: 30)\n"
    "      --engine PROGRAM          (default: swapnet-engine beside this program)\n"
    "      --torch DIR               the PyTorch that engines use\n"
    "      --threads N               that an engine computes with\n"
    "      --library FILE            libswapnet.so (default: beside this program); none: without\n"
    "      --policy NAME             which request runs next: completion (default), exact, tardy, edf, ...\n"
    "      --cascades NAME           before a step's condition is known: wait, preempt, prefetch (default)\n"
    "      --time-error PERCENT      that predicted times may be too short, where deadlines count (default: 25)\n"
    "      --queue N                 requests at most (default: by --memory, up to 1024)\n"
    "      --body-limit SIZE         of a request (default: half of the buffers)\n"
    "      --header-limit SIZE       of its headers (default: 16K)\n"
    "      --connections N           at most (default: by --memory, up to 12000); --connections-per-address N\n"
    "      --http-thread-count N     (default: 2)\n"
    "      --idle-timeout-secs N     of a connection (default: 120)\n"
    "      --header-timeout-secs N   of a request's headers (default: 10)\n"
    "      --answer-timeout-secs N   for an answer to be taken (default: 30)\n"
    "      --least-rate SIZE         a second in which bodies and answers go on (default: 16K)\n"
    "      --group-timeout-ms N, --load-timeout-ms N, --start-timeout-ms N\n"
    "                                until an engine is killed that does not answer (60000, 300000, 60000)\n"
    "      --trace FILE              a timeline of requests and layer groups, for Perfetto or chrome://tracing\n"
    "      --log-verbose N           say more\n"
    "  -h, --help                    show this text\n"
    "  -V, --version                 show the version\n"
    "\n"
    "Other options of Triton's are taken and have no effect. Exit status: 0 when told to end; 1 when it cannot go on;\n"
    "2 for wrong usage; 3 when the repository or another file is missing or not right. See swapnet-serve(8).\n";

enum kind {
    TEXT,
    NUMBER, /* least..most into an unsigned */
    PORT,   /* a text that is such a number */
    SIZE,   /* likewise, into a uint64_t */
    HEADER_SIZE,
    BOOL,
    NO_BOOL, /* true is refused: `text` says why */
    LOAD,
    MODE,
    POLICY,
    CASCADES,
    SECONDS,
    IGNORED,
};

struct option {
    const char *name;
    enum kind kind;
    size_t at; /* of struct swn_serve_options */
    uint64_t least, most;
};

#define AT(field) offsetof(struct swn_serve_options, field)
static const struct option table[] = {
    {"model-repository", TEXT, AT(serving.repository), 0, 0},
    {"model-store", TEXT, AT(serving.repository), 0, 0},
    {"memory", SIZE, AT(serving.memory_bytes), MEMORY_LEAST, SWN_MEMORY_MOST_BYTES},
    {"buffers", SIZE, AT(serving.buffer_bytes), BUFFERS_LEAST, SWN_MEMORY_MOST_BYTES},
    {"http-port", PORT, AT(http.port), 0, 65535},
    {"http-address", TEXT, AT(http.address), 0, 0},
    {"metrics-port", PORT, AT(metrics_port), 0, 65535},
    {"metrics-address", TEXT, AT(metrics_address), 0, 0},
    {"allow-metrics", BOOL, AT(http.has_metrics), 0, 0},
    {"allow-http", BOOL, AT(has_http), 0, 0},
    {"https-port", PORT, AT(https_port), 0, 65535},
    {"https-address", TEXT, AT(https_address), 0, 0},
    {"tls-cert", TEXT, AT(tls_cert), 0, 0},
    {"tls-key", TEXT, AT(tls_key), 0, 0},
    {"allow-grpc", BOOL, AT(wants_grpc), 0, 0},
    {"allow-sagemaker", NO_BOOL, 0, 0, 0},
    {"allow-vertex-ai", NO_BOOL, 0, 0, 0},
    {"model-control-mode", MODE, 0, 0, 0},
    {"load-model", LOAD, 0, 0, 0},
    {"strict-readiness", BOOL, AT(serving.is_strict), 0, 0},
    {"exit-timeout-secs", SECONDS, AT(serving.exit_ms), 0, 86400},
    {"engine", TEXT, AT(serving.engine), 0, 0},
    {"torch", TEXT, AT(serving.torch), 0, 0},
    {"threads", NUMBER, AT(serving.threads), 1, 1024},
    {"library", TEXT, AT(library), 0, 0},
    {"policy", POLICY, 0, 0, 0},
    {"cascades", CASCADES, 0, 0, 0},
    {"time-error", NUMBER, AT(serving.time_error), 0, 900},
    {"queue", NUMBER, AT(serving.queue_most), 1, 65536},
    {"body-limit", SIZE, AT(http.body_most), 1024, SWN_MEMORY_MOST_BYTES},
    {"http-max-input-size", SIZE, AT(http.body_most), 1024, SWN_MEMORY_MOST_BYTES}, /* Triton's word */
    {"header-limit", HEADER_SIZE, AT(http.header_bytes), 4096, 1024 * 1024},
    {"connections", NUMBER, AT(http.connections), 16, 1000000},
    {"connections-per-address", NUMBER, AT(http.connections_per_address), 0, 1000000},
    {"http-thread-count", NUMBER, AT(http.threads), 1, 64},
    {"idle-timeout-secs", NUMBER, AT(http.idle_s), 1, 86400},
    {"header-timeout-secs", NUMBER, AT(http.header_s), 1, 86400},
    {"answer-timeout-secs", NUMBER, AT(http.answer_s), 1, 86400},
    {"least-rate", SIZE, AT(http.least_rate), 1, SWN_MEMORY_MOST_BYTES},
    {"group-timeout-ms", NUMBER, AT(serving.group_ms), 1, 86400000},
    {"load-timeout-ms", NUMBER, AT(serving.load_ms), 1, 86400000},
    {"start-timeout-ms", NUMBER, AT(serving.start_ms), 1, 86400000},
    {"trace", TEXT, AT(serving.trace), 0, 0},
    {"log-verbose", NUMBER, AT(verbose), 0, 1000},
    {NULL, IGNORED, 0, 0, 0},
};
#undef AT

static int say_wrong(const char *name, const char *value, const char *expected)
{
    swn_serve_say("--%s '%s' is not right: use %s", name, value, expected);
    return -EINVAL;
}

static int take_number(const struct option *o, const char *value, unsigned scale, unsigned *to)
{
    char *end, text[64];
    unsigned long long n;

    errno = 0;
    n = strtoull(value, &end, 10);
    if (*value < '0' || *value > '9' || *end || errno || n < o->least || n > o->most) {
        snprintf(text, sizeof text, "a number from %llu to %llu", (unsigned long long)o->least,
                 (unsigned long long)o->most);
        return say_wrong(o->name, value, text);
    }
    *to = (unsigned)n * scale;
    return 0;
}

/* As a user would write it. */
static const char *size_text(char to[32], uint64_t bytes)
{
    static const char units[] = {'T', 'G', 'M', 'K'};

    for (unsigned i = 0, shift = 40; i < sizeof units; i++, shift -= 10)
        if (bytes >> shift && !(bytes & ((UINT64_C(1) << shift) - 1))) {
            snprintf(to, 32, "%" PRIu64 "%c", bytes >> shift, units[i]);
            return to;
        }
    snprintf(to, 32, "%" PRIu64, bytes);
    return to;
}

static int take_size(const struct option *o, const char *value, uint64_t *to)
{
    char least[32], most[32], text[96];

    if (swn_parse_size(value, to) == 0 && *to >= o->least && *to <= o->most)
        return 0;
    snprintf(text, sizeof text, "a size from %s to %s", size_text(least, o->least), size_text(most, o->most));
    return say_wrong(o->name, value, text);
}

/* 1, 0, or -EINVAL. */
static int truth(const struct option *o, const char *value)
{
    static const char *const words[] = {"false", "0", "no", "off", "true", "1", "yes", "on"};

    for (int i = 0; i < 8; i++)
        if (strcasecmp(value, words[i]) == 0)
            return i >= 4;
    return say_wrong(o->name, value, "true or false");
}

static int take_mode(struct swn_serve_options *o, const char *value)
{
    o->serving.is_explicit = !strcmp(value, "explicit");
    if (o->serving.is_explicit || !strcmp(value, "none"))
        return 0;
    return say_wrong("model-control-mode", value, "none or explicit");
}

static int take_policy(struct swn_serve_options *o, const char *value)
{
    char names[256] = "one of";

    if (swn_lane_policy_parse(value, &o->serving.policy) == 0)
        return 0;
    for (int i = 0; i < SWN_LANE_POLICIES; i++) {
        size_t length = strlen(names);
        snprintf(names + length, sizeof names - length, " %s", swn_lane_policy_name((enum swn_lane_policy)i));
    }
    return say_wrong("policy", value, names);
}

static int take_cascades(struct swn_serve_options *o, const char *value)
{
    enum swn_task_cascade *to = &o->serving.cascade;

    if (swn_task_cascade_parse(value, to) == 0 && *to != SWN_CASCADE_IGNORE)
        return 0;
    return say_wrong("cascades", value, "one of wait preempt prefetch");
}

static int take_value(struct swn_serve_options *o, const struct option *option, const char *value)
{
    void *to = (char *)o + option->at;
    unsigned number;
    uint64_t bytes;
    int rc;

    switch (option->kind) {
    case TEXT:
        *(const char **)to = value;
        return 0;
    case NUMBER:
        return take_number(option, value, 1, to);
    case SECONDS:
        return take_number(option, value, 1000, to);
    case PORT:
        *(const char **)to = value;
        return take_number(option, value, 1, &number);
    case SIZE:
        return take_size(option, value, to);
    case HEADER_SIZE:
        rc = take_size(option, value, &bytes);
        *(size_t *)to = rc ? 0 : (size_t)bytes;
        return rc;
    case BOOL:
        rc = truth(option, value);
        *(int *)to = rc > 0;
        return rc < 0 ? rc : 0;
    case NO_BOOL:
        rc = truth(option, value);
        return rc > 0 ? say_wrong(option->name, value, "false: it is not built in") : rc;
    case LOAD:
        if (o->serving.load_count == SWN_LOADS_MOST)
            return say_wrong(option->name, value, "fewer models");
        o->load[o->serving.load_count++] = value;
        return 0;
    case MODE:
        return take_mode(o, value);
    case POLICY:
        return take_policy(o, value);
    case CASCADES:
        return take_cascades(o, value);
    default:
        return 0;
    }
}

/* Triton's for which there is nothing to be set here. */
static const char *const ignored[] = {
    "allow-cpu-metrics",
    "allow-gpu-metrics",
    "backend-config",
    "backend-directory",
    "buffer-manager-thread-count",
    "cache-config",
    "cache-directory",
    "cuda-memory-pool-byte-size",
    "disable-auto-complete-config",
    "enable-peer-access",
    "exit-on-error",
    "grpc-address",
    "grpc-port",
    "grpc-infer-allocation-pool-size",
    "host-policy",
    "http-header-forward-pattern",
    "id",
    "log-error",
    "log-file",
    "log-format",
    "log-info",
    "log-warning",
    "metrics-config",
    "metrics-interval-ms",
    "min-supported-compute-capability",
    "model-load-gpu-limit",
    "model-load-retry-count",
    "model-load-thread-count",
    "model-namespacing",
    "pinned-memory-pool-byte-size",
    "rate-limit",
    "rate-limit-resource",
    "repoagent-directory",
    "repository-poll-secs",
    "response-cache-byte-size",
    "reuse-grpc-port",
    "reuse-http-port",
    "strict-model-config",
    "trace-config",
};

static int is_ignored(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        if (strlen(ignored[i]) == length && memcmp(ignored[i], name, length) == 0)
            return 1;
    return 0;
}

static int take_word(struct swn_serve_options *o, char **argv, int *at)
{
    const char *name = argv[*at] + 2, *equals = strchr(name, '='), *value = equals ? equals + 1 : argv[*at + 1];
    size_t length = equals ? (size_t)(equals - name) : strlen(name);
    const struct option *found = NULL;

    for (const struct option *t = table; t->name; t++)
        if (strlen(t->name) == length && memcmp(t->name, name, length) == 0)
            found = t;
    if (!found && !is_ignored(name, length)) {
        swn_serve_say("unknown option '%s'; see swapnet-serve --help", argv[*at]);
        return -EINVAL;
    }
    if (!value) {
        swn_serve_say("a value is missing behind '%s'", argv[*at]);
        return -EINVAL;
    }
    *at += equals ? 1 : 2;
    if (found)
        return take_value(o, found, value);
    swn_serve_say("--%.*s has no effect here", (int)length, name);
    return 0;
}

static unsigned between(uint64_t least, uint64_t n, uint64_t most)
{
    return (unsigned)(n < least ? least : n > most ? most : n);
}

/* The memory of the server itself, which its connections and its queue bound. */
static void count_front(struct swn_serve_options *o)
{
    uint64_t connection = o->http.header_bytes + CONNECTION_BYTES, memory = o->serving.memory_bytes;

    /* As many of each kind. */
    connection = (o->has_http ? connection : 0) + (o->https_port ? connection + TLS_BYTES : 0);

    if (!o->http.connections)
        o->http.connections = between(64, memory / CONNECTIONS_PART / connection, 12000);
    if (!o->serving.queue_most)
        o->serving.queue_most = between(16, memory / INFERENCES_PART / INFERENCE_BYTES, 1024);
    o->http.inferences = o->serving.queue_most + o->serving.queue_most / 8 + 8; /* some are read, or answered */
    o->serving.front_bytes = FRONT_BYTES + o->http.connections * connection + o->http.inferences * INFERENCE_BYTES;
}

/* As other programs under swapnetd have it. */
static int take_environment(struct swn_serve_party_options *party)
{
    const char *name = getenv("SWAPNET_NAME"), *urgency = getenv("SWAPNET_URGENCY");
    const char *wrong = name && *name ? swn_label_wrong(name) : NULL;

    *party = (struct swn_serve_party_options){
        .daemon = getenv("SWAPNET_DAEMON"), .name = name && *name ? name : "swapnet-serve", .urgency = 1};
    if (wrong)
        swn_serve_say("SWAPNET_NAME '%s' %s", name, wrong);
    else if (urgency && *urgency && swn_label_urgency(urgency, &party->urgency))
        swn_serve_say("SWAPNET_URGENCY '%s' " SWN_LABEL_NO_URGENCY, urgency);
    else
        return 0;
    return -EINVAL;
}

static int check_tls(const struct swn_serve_options *o)
{
    if (o->https_port && (!o->tls_cert || !o->tls_key))
        swn_serve_say("--https-port needs --tls-cert and --tls-key");
    else if (!o->https_port && (o->https_address || o->tls_cert || o->tls_key))
        swn_serve_say("--https-address, --tls-cert and --tls-key need --https-port");
    else if (!o->https_port && !o->has_http)
        swn_serve_say("with --allow-http false there has to be an --https-port");
    else if (o->https_port && !swn_http_has_tls())
        swn_serve_say("there is no --https-port: libmicrohttpd or swapnet-serve was built without GnuTLS");
    else
        return 0;
    return -EINVAL;
}

static int check(struct swn_serve_options *o)
{
    struct swn_serving_options *s = &o->serving;
    char mib[32];

    if (!s->repository || !s->memory_bytes) {
        swn_serve_say("%s is missing; see swapnet-serve --help", s->repository ? "--memory" : "--model-repository");
        return -EINVAL;
    }
    if (check_tls(o))
        return -EINVAL;
    count_front(o);
    if (!s->buffer_bytes)
        s->buffer_bytes = s->memory_bytes / 8 < 64 * MIB ? s->memory_bytes / 8 : 64 * MIB;
    if (s->buffer_bytes + s->front_bytes + SWN_BUDGET_UNASKED_BYTES > s->memory_bytes) {
        swn_serve_say("--memory leaves too little for models beside --buffers and %s for the server itself, its "
                      "connections and its queue",
                      swn_format_mib(mib, s->front_bytes));
        return -EINVAL;
    }
    if (!o->http.body_most)
        o->http.body_most = s->buffer_bytes / 2;
    if (s->load_count && !s->is_explicit) {
        swn_serve_say("--load-model needs --model-control-mode explicit");
        return -EINVAL;
    }
    s->load = o->load;
    if (o->wants_grpc)
        swn_serve_say("gRPC is not built in; HTTP goes on without it");
    return take_environment(&s->party);
}

int swn_serve_options_take(struct swn_serve_options *o, int argc, char **argv)
{
    *o = (struct swn_serve_options){
        .serving = {.group_ms = 60000,
                    .load_ms = 300000,
                    .start_ms = 60000,
                    .exit_ms = 30000,
                    .is_strict = 1,
                    .cascade = SWN_CASCADE_PREFETCH,
                    .time_error = SWN_LANE_TIME_ERROR_PERCENT},
        .http = {.address = "127.0.0.1",
                 .port = "8000",
                 .socket = -1,
                 .threads = 2,
                 .idle_s = 120,
                 .header_s = 10,
                 .answer_s = 30,
                 .least_rate = 16384,
                 .header_bytes = 16384,
                 .has_metrics = 1},
        .has_http = 1,
    };
    for (int i = 1; i < argc;) {
        int rc;
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h") || !strcmp(argv[i], "--version") ||
            !strcmp(argv[i], "-V")) {
            fputs(argv[i][1] == 'h' || argv[i][2] == 'h' ? help : "swapnet-serve " SWAPNET_VERSION "\n", stdout);
            return fflush(stdout) ? -EINVAL : 1;
        }
        if (strncmp(argv[i], "--", 2) != 0) {
            swn_serve_say("unexpected argument '%s'; see swapnet-serve --help", argv[i]);
            return -EINVAL;
        }
        rc = take_word(o, argv, &i);
        if (rc)
            return rc;
    }
    o->serving.is_verbose = o->http.is_verbose = o->verbose > 0;
    return check(o);
}
