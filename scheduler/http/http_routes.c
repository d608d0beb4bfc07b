/* scheduler/http/http_routes.c - which job a method and a path stand for. */
#define _GNU_SOURCE
#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "scheduler/http/http_internal.h"
#include "scheduler/serve/repository_path.h"

#define SEGMENTS 8

enum { GET = 1, POST = 2 };

/* "*" is a model's name, "#" a version. The first that fits counts. */
static const struct route {
    const char *segments[SEGMENTS];
    enum swn_job_kind kind;
    int method;
} routes[] = {
    {{"v2"}, SWN_JOB_SERVER, GET},
    {{"v2", "health", "live"}, SWN_JOB_LIVE, GET},
    {{"v2", "health", "ready"}, SWN_JOB_READY, GET},
    {{"v2", "models", "stats"}, SWN_JOB_STATISTICS, GET},
    {{"v2", "models", "*"}, SWN_JOB_METADATA, GET},
    {{"v2", "models", "*", "ready"}, SWN_JOB_MODEL_READY, GET},
    {{"v2", "models", "*", "config"}, SWN_JOB_CONFIG, GET},
    {{"v2", "models", "*", "stats"}, SWN_JOB_STATISTICS, GET},
    {{"v2", "models", "*", "estimate"}, SWN_JOB_ESTIMATE, GET},
    {{"v2", "models", "*", "infer"}, SWN_JOB_INFER, POST},
    {{"v2", "models", "*", "versions", "#"}, SWN_JOB_METADATA, GET},
    {{"v2", "models", "*", "versions", "#", "ready"}, SWN_JOB_MODEL_READY, GET},
    {{"v2", "models", "*", "versions", "#", "config"}, SWN_JOB_CONFIG, GET},
    {{"v2", "models", "*", "versions", "#", "stats"}, SWN_JOB_STATISTICS, GET},
    {{"v2", "models", "*", "versions", "#", "estimate"}, SWN_JOB_ESTIMATE, GET},
    {{"v2", "models", "*", "versions", "#", "infer"}, SWN_JOB_INFER, POST},
    {{"v2", "repository", "index"}, SWN_JOB_INDEX, POST},
    {{"v2", "repository", "models", "*", "load"}, SWN_JOB_LOAD, POST},
    {{"v2", "repository", "models", "*", "unload"}, SWN_JOB_UNLOAD, POST},
    {{"metrics"}, SWN_JOB_METRICS, GET},
};

struct segment {
    const char *at;
    size_t length;
};

static int split(const char *path, struct segment *segments)
{
    int n = 0;

    while (*path == '/') {
        path++;
        if (!*path && n > 0)
            return n; /* one '/' at the end */
        if (n == SEGMENTS)
            return -1;
        segments[n] = (struct segment){path, strcspn(path, "/")};
        path += segments[n++].length;
    }
    return *path ? -1 : n;
}

static int is_word(const struct segment *s, const char *word)
{
    return strlen(word) == s->length && memcmp(s->at, word, s->length) == 0;
}

static int fits(const struct route *route, const struct segment *segments, int n)
{
    for (int i = 0; i < n; i++) {
        const char *word = i < SEGMENTS ? route->segments[i] : NULL;
        if (!word || (*word != '*' && *word != '#' && !is_word(&segments[i], word)))
            return 0;
    }
    return n == SEGMENTS || !route->segments[n];
}

/* Names before they are anything else: what is no name never reaches a file. */
static int take_names(struct swn_http_request *r, const struct route *route, const struct segment *segments, int n)
{
    for (int i = 0; i < n; i++) {
        char text[SWN_REPOSITORY_NAME];
        const struct segment *s = &segments[i];
        if (*route->segments[i] != '*' && *route->segments[i] != '#')
            continue;
        int length = swn_url_segment_decode(s->at, s->length, text, sizeof text);
        if (*route->segments[i] == '#') {
            if (length < 0 || swn_model_version_parse(text, (size_t)length, &r->job.version))
                return swn_oip_fail(&r->job.error, 400, "a model's version is a number above 0");
        } else if (length < 0 || !swn_repository_name_is_valid(text, (size_t)length)) {
            return swn_oip_fail(&r->job.error, 400,
                                "a model's name has letters, digits, '.', '_' and '-' only, at most %d",
                                SWN_REPOSITORY_NAME - 1);
        } else {
            memcpy(r->job.name, text, (size_t)length + 1);
        }
    }
    return 0;
}

int swn_http_route(struct swn_http_request *r, const char *path, const char *method, const char **allow)
{
    struct segment segments[SEGMENTS];
    int n = split(path, segments);
    int is_get = !strcmp(method, "GET") || !strcmp(method, "HEAD"), is_post = !strcmp(method, "POST");

    for (size_t i = 0; n > 0 && i < sizeof routes / sizeof *routes; i++) {
        const struct route *route = &routes[i];
        if (!fits(route, segments, n) ||
            (route->kind == SWN_JOB_METRICS ? !r->http->options.has_metrics : r->http->options.is_for_metrics))
            continue;
        if (route->method == GET ? !is_get : !is_post) {
            *allow = route->method == GET ? "GET, HEAD" : "POST";
            return swn_oip_fail(&r->job.error, 405, "this is for %s only", *allow);
        }
        r->job.kind = route->kind;
        return take_names(r, route, segments, n);
    }
    return swn_oip_fail(&r->job.error, 404, "there is nothing of this name");
}

/* {"parameters": {...}} of load: a config or files from a client would be the client's choice of what is run. */
static int refuse_parameters(struct swn_http_request *r, const json_t *root)
{
    const char *key;
    json_t *value, *parameters = json_object_get(root, "parameters");

    json_object_foreach(
        parameters, key,
        value) if (r->job.kind == SWN_JOB_LOAD &&
                   (!strcmp(key, "config") ||
                    !strncmp(key, "file:", 5))) return swn_oip_fail(&r->job.error, 400,
                                                                    "the parameter '%.5s...' of load is not taken: put "
                                                                    "it in the repository",
                                                                    key);
    return 0;
}

int swn_http_read_small(struct swn_http_request *r)
{
    json_t *root;
    int rc;

    if (!r->used)
        return 0;
    root = json_loadb(r->small, r->used, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(root)) {
        json_decref(root);
        return swn_oip_fail(&r->job.error, 400, "the body is no JSON object");
    }
    if (r->job.kind == SWN_JOB_INDEX)
        r->job.version = json_is_true(json_object_get(root, "ready"));
    rc = refuse_parameters(r, root);
    json_decref(root);
    return rc;
}
