/* scheduler/serve/serve_status.c - see serve_status.h. */
#define _GNU_SOURCE
#include "scheduler/serve/serve_status.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/size.h"
#include "scheduler/protocol/control.h"
#include "scheduler/protocol/wire.h"
#include "scheduler/serve/serve_leases.h"
#include "scheduler/serve/serving_internal.h"

/* A client of the socket waits for a second. */
#define PATIENCE_NS (400 * SWN_SERVE_MS)
/* With more models than this their layer groups are left out. */
#define GROUPS_OF_MODELS 1000

struct swn_serve_status {
    struct swn_serving *serving;
    struct swn_control *control;
    pthread_mutex_t lock;
    pthread_cond_t answered;
    /* One question at a time: the socket's thread serves one client after the other. Under the lock. */
    int is_asked, is_set;
    unsigned has; /* of is_set: SWN_HAS_BUDGET, SWN_HAS_URGENCY */
    uint64_t budget;
    double urgency;
    char *text; /* the answer, malloc'd; NULL: none yet */
};

/* ---- the document ---- */

static json_t *number(uint64_t n)
{
    return json_integer(n > INT64_MAX ? INT64_MAX : (json_int_t)n);
}

static json_t *text_of(const char *text)
{
    json_t *value = text && *text ? json_string(text) : json_null();
    return value ? value : json_string("?");
}

static const char *kind_of(const struct swn_serving *s, unsigned engine)
{
    const struct swn_served_engine *e = &s->engines[engine];
    return !engine ? "shared" : e->is_worker ? "worker" : "quarantine";
}

static json_t *engine_json(const struct swn_serving *s, unsigned i)
{
    static const char *const states[] = {"down", "starting", "up", "ending"};
    const struct swn_served_engine *e = &s->engines[i];
    int is_alive = e->link.state != SWN_ENGINE_IS_DOWN;

    return json_pack("{s:i s:o s:s s:s s:o s:o s:o s:o s:o s:o}", "engine", (int)i, "pid",
                     is_alive ? number((uint64_t)e->link.pid) : json_null(), "kind", kind_of(s, i), "state",
                     states[e->link.state], "budget_bytes", number(is_alive ? e->budget_bytes : 0), "lease_bytes",
                     number(e->lease_bytes), "least_bytes", number(e->least_bytes), "read_bytes", number(e->read_total),
                     "starts", number(e->starts), "torch_version", text_of(e->link.version));
}

static json_t *engines_json(const struct swn_serving *s)
{
    json_t *list = json_array();

    for (unsigned i = 0; i < SWN_ENGINES_MOST; i++)
        if (s->engines[i].is_wanted || s->engines[i].link.state != SWN_ENGINE_IS_DOWN)
            json_array_append_new(list, engine_json(s, i));
    return list;
}

static json_t *groups_json(const struct swn_serving *s, const struct swn_served *m)
{
    struct swn_lane_group groups[SWN_GROUPS_MOST];
    json_t *list = json_array();
    uint32_t n = 0;

    if (m->state == SWN_MODEL_READY && m->engine < SWN_ENGINES_MOST && s->count <= GROUPS_OF_MODELS)
        n = swn_group_times_now(&m->times, m->weight_bytes, s->engines[m->engine].read_total, groups);
    for (uint32_t g = 0; g < n; g++) {
        int is_measured = m->times.count && m->times.known >> g & 1;
        int is_seen = groups[g].activation_bytes != SWN_LANE_NOT_KNOWN;
        json_array_append_new(list,
                              json_pack("{s:o s:o s:o s:o s:o}", "weight_bytes", number(groups[g].weight_bytes),
                                        "missing_bytes", number(groups[g].missing_bytes), "compute_ns",
                                        is_measured ? number(groups[g].compute_ns) : json_null(), "activation_bytes",
                                        is_seen ? number(groups[g].activation_bytes) : json_null(), "state_bytes",
                                        is_seen ? number(groups[g].state_bytes) : json_null()));
    }
    return list;
}

/* begun: its requests that an engine has. */
static json_t *model_json(const struct swn_serving *s, const struct swn_served *m, uint64_t begun)
{
    uint64_t failed = 0;

    for (int r = 0; r < SWN_FAILURES; r++)
        failed += m->counts.failure[r];
    return json_pack("{s:s s:I s:s s:o s:o s:b s:o s:o s:o s:o s:o s:o s:o s:o s:o}", "name", m->name, "version",
                     (json_int_t)m->version, "state", swn_answers_state(s, m), "reason", text_of(m->reason), "engine",
                     m->engine < SWN_ENGINES_MOST ? json_integer(m->engine) : json_null(), "quarantined",
                     m->is_quarantined, "weight_bytes", number(m->weight_bytes), "resident_bytes",
                     number(swn_leases_in_memory(s, m)), "succeeded", number(m->counts.success), "failed",
                     number(failed), "queued", number(m->counts.pending), "running", number(begun), "request_ns",
                     number(m->counts.request_ns), "infer_ns", number(m->counts.infer_ns), "groups", groups_json(s, m));
}

static json_t *models_json(const struct swn_serving *s)
{
    uint64_t *begun = calloc(s->count + 1, sizeof *begun);
    json_t *list = json_array();

    for (const struct swn_serve_item *item = s->queue.first; item && begun; item = item->next)
        if (item->model < s->count)
            begun[item->model] += item->is_begun;
    for (size_t i = 0; i < s->count && begun; i++)
        if (s->models[i]->version || *s->models[i]->reason)
            json_array_append_new(list, model_json(s, s->models[i], begun[i]));
    free(begun);
    return list;
}

static json_t *serve_json(const struct swn_serving *s)
{
    struct swn_buffer_use use;

    swn_buffer_use(s->buffer, &use);
    return json_pack("{s:i s:o s:o s:o s:o s:s s:I s:b s:f s:o s:o}", "port", (int)s->hooks->port, "memory_bytes",
                     number(s->options.memory_bytes), "buffer_bytes", number(use.bytes), "buffer_used_bytes",
                     number(use.used_bytes), "engine_budget_bytes", number(swn_leases_total(s)), "policy",
                     swn_lane_policy_name(s->options.policy), "requests", (json_int_t)s->queue.count, "draining",
                     s->is_draining != 0, "disk_bytes_per_s", swn_disk_rate(&s->engines[0].disk) * 1e9, "engines",
                     engines_json(s), "models", models_json(s));
}

/* The document of every process under swapnet, as far as it is about the server, and what the server alone has. */
static char *status_text(struct swn_serving *s, uint64_t now)
{
    struct swn_serve_party_needs needs;
    uint64_t read_bytes = 0;
    json_t *root;
    char *text;

    swn_leases_needs(s, now, &needs);
    for (unsigned i = 0; i < SWN_ENGINES_MOST; i++)
        read_bytes += s->engines[i].read_total;
    root = json_pack("{s:i s:I s:s s:o s:o s:o s:o s:f s:s s:o s:o s:o s:o}", "schema", 1, "pid", (json_int_t)getpid(),
                     "name", s->options.party.name, "budget_bytes", number(swn_leases_budget(s)), "minimum_bytes",
                     number(needs.least_bytes), "demand_bytes", number(needs.demand_bytes), "resident_bytes",
                     number(needs.resident_bytes), "urgency", s->options.party.urgency, "state", "running",
                     "streamed_bytes", number(read_bytes), "torch_version", text_of(s->engines[0].link.version),
                     "daemon_socket", text_of(swn_serve_party_daemon(s->limits.party)), "serve", serve_json(s));
    text = root ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    return text;
}

static char *set_text(struct swn_serve_status *status, uint64_t now)
{
    struct swn_serving *s = status->serving;
    struct swn_serve_party_needs needs;
    char text[128], mib[32];
    json_t *root;
    char *answer;

    swn_leases_needs(s, now, &needs);
    if (status->has & SWN_HAS_BUDGET && status->budget && status->budget < needs.least_bytes) {
        snprintf(text, sizeof text, "it needs at least %s", swn_format_mib(mib, needs.least_bytes));
        root = json_pack("{s:i s:s s:o}", "schema", 1, "error", text, "minimum_bytes", number(needs.least_bytes));
    } else {
        if (status->has & SWN_HAS_BUDGET)
            swn_leases_cap(s, status->budget);
        if (status->has & SWN_HAS_URGENCY)
            s->options.party.urgency = status->urgency;
        swn_serve_party_wish(s->limits.party, swn_leases_cap_now(s), s->options.party.urgency);
        root = json_pack("{s:i s:I s:o s:o s:f s:b}", "schema", 1, "pid", (json_int_t)getpid(), "budget_bytes",
                         number(swn_leases_budget(s)), "minimum_bytes", number(needs.least_bytes), "urgency",
                         s->options.party.urgency, "bound", needs.held_bytes <= swn_leases_budget(s));
    }
    answer = root ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    return answer;
}

void swn_serve_status_answer(struct swn_serve_status *status, uint64_t now)
{
    if (!status)
        return;
    pthread_mutex_lock(&status->lock);
    if (status->is_asked) {
        status->is_asked = 0;
        free(status->text);
        status->text = status->is_set ? set_text(status, now) : status_text(status->serving, now);
        pthread_cond_signal(&status->answered);
    }
    pthread_mutex_unlock(&status->lock);
}

/* ---- the socket's thread ---- */

/* The question is in *status, under its lock. A serving thread that is busy for so long answers nobody; its answer to
 * this question is then nobody's. */
static char *await(struct swn_serve_status *status)
{
    struct timespec until;
    char *text;
    uint64_t at;

    clock_gettime(CLOCK_MONOTONIC, &until);
    at = (uint64_t)until.tv_nsec + PATIENCE_NS;
    until.tv_sec += (time_t)(at / 1000000000);
    until.tv_nsec = (long)(at % 1000000000);
    free(status->text);
    status->text = NULL;
    status->is_asked = 1;
    swn_serving_wake(status->serving);
    while (status->is_asked && pthread_cond_timedwait(&status->answered, &status->lock, &until) != ETIMEDOUT)
        ;
    status->is_asked = 0;
    text = status->text;
    status->text = NULL;
    return text ? text : strdup("{\"schema\":1,\"error\":\"the server is busy, or about to end\"}");
}

static char *ask_status(void *user)
{
    struct swn_serve_status *status = user;
    char *text;

    pthread_mutex_lock(&status->lock);
    status->is_set = 0;
    text = await(status);
    pthread_mutex_unlock(&status->lock);
    return text;
}

static char *ask_set(void *user, unsigned has, uint64_t budget, double urgency)
{
    struct swn_serve_status *status = user;
    char *text;

    pthread_mutex_lock(&status->lock);
    status->is_set = 1;
    status->has = has;
    status->budget = budget;
    status->urgency = urgency;
    text = await(status);
    pthread_mutex_unlock(&status->lock);
    return text;
}

struct swn_serve_status *swn_serve_status_start(struct swn_serving *s)
{
    struct swn_serve_status *status = calloc(1, sizeof *status);
    struct swn_control_opts opts = {.status = ask_status, .set = ask_set, .user = status};
    pthread_condattr_t attributes;
    int rc;

    if (!status)
        return NULL;
    status->serving = s;
    pthread_mutex_init(&status->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&status->answered, &attributes);
    pthread_condattr_destroy(&attributes);
    rc = swn_control_start(&status->control, &opts);
    if (rc == 0)
        return status;
    if (s->options.is_verbose)
        swn_serve_say("swapnetctl does not see this server: no status socket: %s", strerror(-rc));
    status->control = NULL;
    swn_serve_status_stop(status);
    return NULL;
}

void swn_serve_status_stop(struct swn_serve_status *status)
{
    if (!status)
        return;
    swn_control_stop(status->control);
    pthread_cond_destroy(&status->answered);
    pthread_mutex_destroy(&status->lock);
    free(status->text);
    free(status);
}
