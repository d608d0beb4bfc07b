/* scheduler/serve/serve_engines.c - engines are started, heard, limited in time, and started again.
 *
 * An engine that dies is started again at once; only one that dies again and again without having done any work waits.
 * What it died of counts against a model if the engine crashed or hung under it. An engine that somebody else killed
 * (the administrator, or the kernel for want of memory) counts against nobody, but a request is not tried for ever, nor
 * is the loading of a model: memory that it takes then is not counted, so a file could have the kernel kill each
 * engine.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/size.h"
#include "scheduler/protocol/systemd.h"
#include "scheduler/serve/serve_leases.h"
#include "scheduler/serve/serving_internal.h"

/* How many engines may die under a model before it gets one of its own; with DEATHS_MOST it gets none. The count begins
 * anew if no engine has died under the model for DEATHS_FORGOTTEN_NS. */
#define DEATHS_QUARANTINE 2
#define DEATHS_FORGOTTEN_NS (600 * UINT64_C(1000000000))
/* An engine that dies again and again soon after it has loaded its models (the kernel's OOM killer) is started ever
 * more slowly, up to half a second: it works, and its requests wait. A few ends in a row are started again at once. */
#define QUICK_NS (30 * UINT64_C(1000000000))
#define QUICK_FREE 8
#define QUICK_SLOWEST 3
#define DEATHS_MOST 4
/* An engine that has closed its socket has so long to end by itself: the kernel closes sockets before it reports an
 * end. What goes on is killed, and that is the engine's own failure. */
#define CLOSED_NS (1000 * SWN_SERVE_MS)
/* A killed engine's end is looked for after a thirty-second of the time that it takes by now, from the least to the
 * most pause. */
#define LOOK_LEAST_NS (1 * SWN_SERVE_MS)
#define LOOK_MOST_NS (100 * SWN_SERVE_MS)

/* How long it waits that died `fruitless` times in a row without any work done. */
static uint64_t pause_ns(unsigned fruitless)
{
    static const unsigned ms[] = {0, 0, 100, 500, 2000, 5000};
    const unsigned last = sizeof ms / sizeof *ms - 1;

    return ms[fruitless < last ? fruitless : last] * SWN_SERVE_MS;
}

static void start(struct swn_serving *s, unsigned i, uint64_t now)
{
    struct swn_served_engine *e = &s->engines[i];
    char why[SWN_ERRMSG], mib[32];
    struct swn_engine_start how = {.program = s->options.engine,
                                   .torch = s->options.torch,
                                   .preload = s->options.preload,
                                   .is_worker = e->is_worker,
                                   .budget_bytes = e->lease_bytes,
                                   .threads = s->options.threads,
                                   .buffer_fd = swn_buffer_fd(s->buffer),
                                   .buffer_bytes = s->options.buffer_bytes};
    int rc = swn_engine_link_start(&e->link, &how, now, why);

    e->starts++;
    if (rc) {
        e->fruitless++;
        e->start_at_ns = now + pause_ns(e->fruitless + 1);
        s->has_moved = 1; /* loads may wait for it in vain */
        swn_serve_say("%s", why);
        swn_requests_lost(s, i, 0);
        return;
    }
    s->restarts += e->has_died;
    e->has_died = 0;
    swn_leases_started(e);
    e->started_ns = now;
    swn_serve_watch(s, e->link.socket, SWN_SERVE_TAG(SWN_TAG_ENGINE, i), EPOLLIN);
    if (s->options.is_verbose)
        swn_serve_say("engine %u is process %ld, with %s", i, (long)e->link.pid, swn_format_mib(mib, e->budget_bytes));
}

/* ---- death ---- */

static void move_to(struct swn_serving *s, struct swn_served *model, unsigned engine)
{
    model->engine = engine;
    for (struct swn_serve_item *item = s->queue.first; item; item = item->next)
        if (item->model == model->number)
            item->engine = engine;
}

/* The model's own engine ends. */
static void give_up(struct swn_serving *s, struct swn_served *model)
{
    if (model->engine)
        s->engines[model->engine].is_wanted = 0;
    model->is_quarantined = 0;
    move_to(s, model, 0);
}

/* What an engine of one model has, unless its config.pbtxt says. */
static uint64_t usual_own(const struct swn_serving *s)
{
    uint64_t bytes = swn_leases_most(s) / SWN_OWN_PART;

    return bytes > SWN_BUDGET_UNASKED_BYTES ? bytes : SWN_BUDGET_UNASKED_BYTES;
}

/* Whether the shared engine can do without `bytes`: it keeps as much as an engine of one model has. */
static int can_spare(const struct swn_serving *s, uint64_t bytes)
{
    uint64_t most = swn_leases_most(s);

    return bytes <= most && swn_leases_base(s, 0, most) >= bytes + usual_own(s);
}

/* A free engine, which the model gets with `own_bytes`; 0: there is none, or the shared one would have too little. */
static unsigned set_apart(struct swn_serving *s, struct swn_served *model, uint64_t own_bytes)
{
    if (!can_spare(s, own_bytes))
        return 0;
    for (unsigned i = 1; i < SWN_ENGINES_MOST; i++) {
        struct swn_served_engine *e = &s->engines[i];
        if (e->is_wanted || e->link.state != SWN_ENGINE_IS_DOWN)
            continue;
        e->is_wanted = 1;
        e->is_worker = model->is_python;
        e->own_bytes = own_bytes;
        e->lease_bytes = 0; /* the next review has one */
        e->fruitless = e->quick = 0;
        e->has_died = 0;
        e->start_at_ns = 0;
        move_to(s, model, i);
        return i;
    }
    return 0;
}

static void blame(struct swn_serving *s, struct swn_served *model, uint64_t now)
{
    if (now - model->deaths.last_ns >= DEATHS_FORGOTTEN_NS)
        model->deaths.count = 0;
    model->deaths.last_ns = now;
    model->deaths.count++;
    if (model->deaths.count < DEATHS_QUARANTINE)
        return;
    if (!model->engine && set_apart(s, model, usual_own(s))) {
        model->is_quarantined = 1;
        swn_serve_say("model %s, version %" PRId64 ": %u engines died under it; it gets one of its own", model->name,
                      model->version, model->deaths.count);
        return;
    }
    if (model->deaths.count < DEATHS_MOST && model->engine)
        return;
    swn_models_fail(s, model, "engines died under it again and again");
    give_up(s, model);
}

/* Others give way first, and one that does not get enough is not started. */
static void start_or_wait(struct swn_serving *s, unsigned i, uint64_t now)
{
    if (swn_leases_has_room(s, i)) {
        start(s, i, now);
        return;
    }
    for (size_t k = 0; i && k < s->count && swn_leases_is_hopeless(s, i); k++)
        if (s->models[k]->engine == i) {
            swn_models_fail(s, s->models[k], "the other engines cannot do without the memory that it needs");
            give_up(s, s->models[k]);
        }
}

/* ---- models in Python ---- */

/* What config.pbtxt says that the model's worker is to have: the parameter "memory". 0 or -EINVAL. */
static int own_memory(const struct swn_serving *s, const struct swn_served *model, uint64_t *bytes)
{
    const struct swn_model_config *c = model->config;

    *bytes = usual_own(s);
    for (unsigned i = 0; i < c->parameter_count; i++)
        if (strcmp(c->parameters[i].key, "memory") == 0)
            return swn_parse_size(c->parameters[i].value, bytes) || *bytes < SWN_BUDGET_LEAST_BYTES ? -EINVAL : 0;
    return 0;
}

#define NO_OWN_SIZE "config.pbtxt: its parameter 'memory' is no size from 4M on, e.g. 200M"
#define NO_OWN_PLACE "it needs an engine and memory of its own, and there is none left"

/* One that nobody wants any more is about to end. */
static int is_place_coming(const struct swn_serving *s)
{
    for (unsigned i = 1; i < SWN_ENGINES_MOST; i++)
        if (!s->engines[i].is_wanted && s->engines[i].link.state != SWN_ENGINE_IS_DOWN)
            return 1;
    return 0;
}

/* A model in Python that is wanted gets its engine, or waits for one that ends. */
static void house(struct swn_serving *s, struct swn_served *m)
{
    uint64_t bytes;

    if (own_memory(s, m, &bytes))
        swn_models_fail(s, m, NO_OWN_SIZE);
    else if (!set_apart(s, m, bytes) && (!can_spare(s, bytes) || !is_place_coming(s)))
        swn_models_fail(s, m, NO_OWN_PLACE);
}

/* A model in Python that is loaded again has what its config.pbtxt says now. */
static void resize(struct swn_serving *s, struct swn_served *m)
{
    struct swn_served_engine *e = &s->engines[m->engine];
    uint64_t bytes;

    if (own_memory(s, m, &bytes))
        swn_models_fail(s, m, NO_OWN_SIZE);
    else if (bytes > e->own_bytes && !can_spare(s, bytes - e->own_bytes))
        swn_models_fail(s, m, NO_OWN_PLACE);
    else
        e->own_bytes = bytes;
}

static void give_engines(struct swn_serving *s)
{
    for (size_t i = 0; i < s->count; i++) {
        struct swn_served *m = s->models[i];
        int is_wanted = m->state == SWN_MODEL_WANTED;
        /* It has left, or has another kind of file now. */
        if (m->engine && ((!m->is_wanted && m->state == SWN_MODEL_UNAVAILABLE) ||
                          (is_wanted && s->engines[m->engine].is_worker != m->is_python)))
            give_up(s, m);
    }
    for (size_t i = 0; i < s->count; i++) {
        struct swn_served *m = s->models[i];
        if (m->is_python && m->state == SWN_MODEL_WANTED)
            (m->engine ? resize : house)(s, m);
    }
}

static const char *cause(const struct swn_engine_link *link, int status, char text[64])
{
    if (link->is_ours_to_kill)
        return link->is_closed ? "it closed its socket and went on" : "it took too long, or broke the protocol";
    if (WIFSIGNALED(status))
        snprintf(text, 64, "signal %d, %s", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(text, 64, "exit status %d", WEXITSTATUS(status));
    return text;
}

static void died(struct swn_serving *s, unsigned i, int status, uint64_t now)
{
    struct swn_served_engine *e = &s->engines[i];
    const struct swn_engine_told *doing = swn_engine_link_doing(&e->link);
    int was_up = !doing || doing->op != SWN_ENGINE_READY;
    int from_outside =
        WIFSIGNALED(status) && !e->link.is_ours_to_kill && (WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGTERM);
    int is_with_model = was_up && doing && doing->op != SWN_ENGINE_BUDGET && doing->model < s->count;
    int is_with_request = is_with_model && (doing->op == SWN_ENGINE_RUN || doing->op == SWN_ENGINE_STORE);
    struct swn_served *model = is_with_model ? s->models[doing->model] : NULL;
    int is_kill_loading = from_outside && model && doing->op == SWN_ENGINE_LOAD && WTERMSIG(status) == SIGKILL;
    unsigned slow;
    char text[64];

    e->has_died = 1;
    e->fruitless++;
    e->quick = now - e->started_ns < QUICK_NS ? e->quick + 1 : 0;
    slow = e->quick / QUICK_FREE < QUICK_SLOWEST ? e->quick / QUICK_FREE : QUICK_SLOWEST;
    e->start_at_ns = now + pause_ns(e->fruitless > slow ? e->fruitless : slow);
    swn_serve_say("engine %u died %s%s: %s", i,
                  model    ? "under model "
                  : was_up ? "at rest"
                           : "at its start",
                  model ? model->name : "", cause(&e->link, status, text));
    swn_models_lost(s, i);
    swn_requests_lost(s, i, !from_outside && is_with_request);
    if (model && (!from_outside || (is_kill_loading && model->deaths.kills_loading++ > 0)))
        blame(s, model, now);
}

static int is_engine(const struct swn_serving *s, pid_t pid)
{
    for (unsigned i = 0; i < SWN_ENGINES_MOST; i++)
        if (s->engines[i].link.pid == pid)
            return 1;
    return 0;
}

/* Where the server is the first process of a container, or a subreaper, the kernel gives it the children that an engine
 * leaves behind, and it has to reap them. Elsewhere a child that is no engine belongs to whoever this process was
 * before it became the server. The kernel reports one ended child at a time: while that is an engine, the caller comes
 * again when the engine has been reaped. */
static void reap_others(const struct swn_serving *s)
{
    siginfo_t info;
    int takes = 0;

    takes = getpid() == 1 || (prctl(PR_GET_CHILD_SUBREAPER, &takes, 0, 0, 0) == 0 && takes);
    while (takes) {
        info.si_pid = 0;
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) || info.si_pid == 0 || is_engine(s, info.si_pid))
            return;
        waitpid(info.si_pid, NULL, WNOHANG);
    }
}

/* Looks whether an engine that is to end has ended. */
static void see_end(struct swn_serving *s, unsigned i, uint64_t now)
{
    struct swn_served_engine *e = &s->engines[i];
    uint64_t pause;
    int status;

    if (e->link.state != SWN_ENGINE_IS_ENDING || (e->ending_ns && now < e->look_at_ns))
        return;
    e->ending_ns = e->ending_ns ? e->ending_ns : now;
    swn_serve_watch(s, e->link.socket, 0, 0);
    if (swn_engine_link_reap(&e->link, &status)) {
        e->ending_ns = 0;
        reap_others(s);
        if (e->is_wanted)
            died(s, i, status, now);
        return;
    }
    if (!e->link.is_ours_to_kill && now - e->ending_ns >= CLOSED_NS)
        swn_engine_link_kill(&e->link);
    pause = (now - e->ending_ns) / 32;
    e->look_at_ns = now + (pause < LOOK_LEAST_NS ? LOOK_LEAST_NS : pause > LOOK_MOST_NS ? LOOK_MOST_NS : pause);
}

/* ---- what engines say ---- */

static void hear(struct swn_serving *s, unsigned i, const struct swn_engine_message *m, uint64_t now)
{
    struct swn_served_engine *e = &s->engines[i];

    switch (m->op) {
    case SWN_ENGINE_READY:
        swn_serve_say("engine %u is up, PyTorch %s", i, e->link.version);
        return;
    case SWN_ENGINE_LOADED:
        swn_models_loaded(s, m);
        break;
    case SWN_ENGINE_UNLOADED:
        swn_models_unloaded(s, m);
        break;
    case SWN_ENGINE_RAN:
        swn_requests_ran(s, i, m, now);
        break;
    case SWN_ENGINE_STORED:
        swn_requests_stored(s, m, now);
        break;
    case SWN_ENGINE_BUDGETED:
        swn_leases_told(s, i, m, now);
        return;
    }
    e->fruitless = 0;
}

void swn_engines_readable(struct swn_serving *s, unsigned i, uint64_t now)
{
    struct swn_served_engine *e = &s->engines[i];
    struct swn_engine_message m;
    int rc;

    if (e->link.state == SWN_ENGINE_IS_ENDING)
        return; /* see_end takes it from the loop */
    while ((rc = swn_engine_link_hear(&e->link, &m, now)) == 1) {
        hear(s, i, &m, now);
        swn_requests_run(s, i, now); /* it computes while we look at the rest */
        if (e->link.state == SWN_ENGINE_IS_ENDING)
            return;
    }
    if (rc == -EAGAIN)
        return;
    if (rc == 0 || rc == -ECONNRESET)
        swn_engine_link_closed(&e->link);
    else
        swn_engine_link_kill(&e->link);
}

void swn_engines_bury(struct swn_serving *s, uint64_t now)
{
    for (unsigned i = 0; i < SWN_ENGINES_MOST; i++) {
        struct swn_engine_link *link = &s->engines[i].link;
        int is_alive = link->state == SWN_ENGINE_IS_STARTING || link->state == SWN_ENGINE_IS_UP;
        if (!is_alive || !swn_engine_link_is_dead(link))
            continue;
        swn_engines_readable(s, i, now);
        if (link->state != SWN_ENGINE_IS_ENDING)
            swn_engine_link_closed(link);
    }
    reap_others(s);
}

/* ---- time ---- */

/* When what the engine does has taken too long; 0: it does nothing. */
static uint64_t limit(const struct swn_serving *s, const struct swn_engine_link *link)
{
    int is_alive = link->state == SWN_ENGINE_IS_STARTING || link->state == SWN_ENGINE_IS_UP;
    const struct swn_engine_told *doing = is_alive ? swn_engine_link_doing(link) : NULL;
    uint64_t ms = !doing                          ? 0
                  : doing->op == SWN_ENGINE_READY ? s->options.start_ms
                  : doing->op == SWN_ENGINE_LOAD  ? s->options.load_ms
                                                  : s->options.group_ms;

    return ms ? link->since_ns + ms * SWN_SERVE_MS : 0;
}

uint64_t swn_engines_due(const struct swn_serving *s)
{
    uint64_t due = swn_serve_party_due(s->limits.party);

    for (int i = 0; i < SWN_ENGINES_MOST; i++) {
        const struct swn_served_engine *e = &s->engines[i];
        uint64_t at = limit(s, &e->link);
        if (e->is_wanted && e->link.state == SWN_ENGINE_IS_DOWN && !s->is_draining &&
            swn_leases_has_room(s, (unsigned)i))
            at = e->start_at_ns ? e->start_at_ns : 1;
        if (e->link.state == SWN_ENGINE_IS_ENDING)
            at = e->ending_ns ? e->look_at_ns : 1; /* at once */
        if (at && (!due || at < due))
            due = at;
        if (e->link.state != SWN_ENGINE_IS_UP)
            continue; /* what it was to be told or to run then is looked at when it is up */
        if (e->tell_at_ns && (!due || e->tell_at_ns < due))
            due = e->tell_at_ns;
        if (e->wake_ns && (!due || e->wake_ns < due))
            due = e->wake_ns;
    }
    return due;
}

void swn_engines_pump(struct swn_serving *s, uint64_t now)
{
    give_engines(s);
    swn_leases_review(s, now);
    swn_leases_report(s, now);
    for (unsigned i = 0; i < SWN_ENGINES_MOST; i++) {
        struct swn_served_engine *e = &s->engines[i];
        uint64_t late = limit(s, &e->link);
        int is_idle = s->is_draining && !s->queue.count;
        if (late && late <= now) {
            swn_serve_say("engine %u has not answered in time; it is killed", i);
            swn_engine_link_kill(&e->link);
        }
        if (!e->is_wanted && e->link.state != SWN_ENGINE_IS_DOWN && e->link.state != SWN_ENGINE_IS_ENDING)
            swn_engine_link_kill(&e->link);
        see_end(s, i, now);
        if (e->is_wanted && e->link.state == SWN_ENGINE_IS_DOWN && now >= e->start_at_ns && !is_idle)
            start_or_wait(s, i, now);
        if (e->link.state == SWN_ENGINE_IS_UP) {
            swn_models_advance(s, i, now);
            swn_requests_run(s, i, now);
        }
    }
}
