/* scheduler/serve/serve_engines.c - engines are started, heard, limited in time, and started again.
 *
 * An engine that dies is started again at once; only one that dies again and again without having done any work waits.
 * What it died of counts against a model if the engine crashed or hung under it. An engine that somebody else killed
 * (the administrator, or the kernel for want of memory) counts against nobody, but a request is not tried for ever.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#include "base/size.h"
#include "scheduler/protocol/systemd.h"
#include "scheduler/serve/serving_internal.h"

/* Engines that died under a model: with so many it gets one of its own, and with more none at all. */
#define DEATHS_QUARANTINE 2
/* An engine that dies again and again soon after it has loaded its models (the kernel's OOM killer) is started ever
 * more slowly; a few ends in a row are started again at once. */
#define QUICK_NS (30 * UINT64_C(1000000000))
#define QUICK_FREE 8
#define DEATHS_MOST 4

static uint64_t total_budget(const struct swn_serving *s)
{
    return s->options.memory_bytes - s->options.buffer_bytes - s->options.front_bytes;
}

/* What the engine is to have if it is started now, so that all together have the total at most. An engine's share is
 * fixed while it lives. */
static uint64_t budget_of(const struct swn_serving *s, unsigned engine)
{
    uint64_t total = total_budget(s), part = total / SWN_QUARANTINE_PART, own = 0;

    for (unsigned i = 1; i < SWN_ENGINES_MOST; i++)
        own += s->engines[i].is_wanted ? part : 0;
    return engine ? part : total - own;
}

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
                                   .budget_bytes = budget_of(s, i),
                                   .threads = s->options.threads,
                                   .buffer_fd = swn_buffer_fd(s->buffer),
                                   .buffer_bytes = s->options.buffer_bytes};
    int rc = swn_engine_link_start(&e->link, &how, now, why);

    s->restarts += e->starts++ > 0;
    if (rc) {
        e->fruitless++;
        e->start_at_ns = now + pause_ns(e->fruitless + 1);
        swn_serve_say("%s", why);
        swn_requests_lost(s, i, 0);
        return;
    }
    e->budget_bytes = how.budget_bytes;
    e->started_ns = now;
    swn_serve_watch(s, e->link.socket, SWN_SERVE_TAG(SWN_TAG_ENGINE, i), EPOLLIN);
    if (s->options.is_verbose)
        swn_serve_say("engine %u is process %ld, with %s", i, (long)e->link.pid, swn_format_mib(mib, e->budget_bytes));
}

/* ---- death ---- */

/* A free engine, which the model gets; 0: there is none. */
static unsigned quarantine(struct swn_serving *s, struct swn_served *model)
{
    for (unsigned i = 1; i < SWN_ENGINES_MOST; i++) {
        if (s->engines[i].is_wanted)
            continue;
        s->engines[i].is_wanted = 1;
        s->engines[i].fruitless = 0;
        s->engines[i].start_at_ns = 0;
        model->is_quarantined = 1;
        model->engine = i;
        for (struct swn_serve_item *item = s->queue.first; item; item = item->next)
            if (item->model == model->number)
                item->engine = i;
        return i;
    }
    return 0;
}

static void blame(struct swn_serving *s, struct swn_served *model)
{
    model->deaths++;
    if (model->deaths < DEATHS_QUARANTINE)
        return;
    if (!model->is_quarantined && quarantine(s, model)) {
        swn_serve_say("model %s, version %" PRId64 ": %u engines died under it; it gets one of its own", model->name,
                      model->version, model->deaths);
        return;
    }
    if (model->deaths < DEATHS_MOST && model->is_quarantined)
        return;
    swn_models_fail(s, model, "engines died under it again and again");
    if (model->is_quarantined)
        s->engines[model->engine].is_wanted = 0;
    model->is_quarantined = 0;
    model->engine = 0;
}

static const char *cause(const struct swn_engine_link *link, int status, char text[64])
{
    if (link->is_ours_to_kill)
        return "it took too long, or broke the protocol";
    if (WIFSIGNALED(status))
        snprintf(text, 64, "signal %d, %s", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(text, 64, "exit status %d", WEXITSTATUS(status));
    return text;
}

static void died(struct swn_serving *s, unsigned i, uint64_t now)
{
    struct swn_served_engine *e = &s->engines[i];
    const struct swn_engine_told *doing = swn_engine_link_doing(&e->link);
    int was_up = e->link.state == SWN_ENGINE_IS_UP, status, from_outside;
    struct swn_served *model = NULL;
    char text[64];

    swn_serve_watch(s, e->link.socket, 0, 0);
    status = swn_engine_link_end(&e->link);
    from_outside =
        WIFSIGNALED(status) && !e->link.is_ours_to_kill && (WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGTERM);
    if (was_up && doing && doing->op != SWN_ENGINE_READY && doing->model < s->count)
        model = s->models[doing->model];
    e->fruitless++;
    e->quick = now - e->started_ns < QUICK_NS ? e->quick + 1 : 0;
    e->start_at_ns = now + pause_ns(e->fruitless > e->quick / QUICK_FREE ? e->fruitless : e->quick / QUICK_FREE);
    swn_serve_say("engine %u died %s%s: %s", i,
                  model    ? "under model "
                  : was_up ? "at rest"
                           : "at its start",
                  model ? model->name : "", cause(&e->link, status, text));
    swn_models_lost(s, i);
    swn_requests_lost(s, i, !from_outside);
    if (model && !from_outside)
        blame(s, model);
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
    }
    e->fruitless = 0;
}

void swn_engines_readable(struct swn_serving *s, unsigned i, uint64_t now)
{
    struct swn_served_engine *e = &s->engines[i];
    struct swn_engine_message m;
    int rc;

    while ((rc = swn_engine_link_hear(&e->link, &m, now)) == 1) {
        hear(s, i, &m, now);
        swn_requests_run(s, i, now); /* it computes while we look at the rest */
    }
    if (rc == -EAGAIN)
        return;
    if (rc < 0)
        swn_engine_link_kill(&e->link);
    died(s, i, now);
}

/* ---- time ---- */

/* When what the engine does has taken too long; 0: it does nothing. */
static uint64_t limit(const struct swn_serving *s, const struct swn_engine_link *link)
{
    const struct swn_engine_told *doing = link->state == SWN_ENGINE_IS_DOWN ? NULL : swn_engine_link_doing(link);
    uint64_t ms = !doing                          ? 0
                  : doing->op == SWN_ENGINE_READY ? s->options.start_ms
                  : doing->op == SWN_ENGINE_LOAD  ? s->options.load_ms
                                                  : s->options.group_ms;

    return ms ? link->since_ns + ms * SWN_SERVE_MS : 0;
}

uint64_t swn_engines_due(const struct swn_serving *s)
{
    uint64_t due = 0;

    for (int i = 0; i < SWN_ENGINES_MOST; i++) {
        const struct swn_served_engine *e = &s->engines[i];
        uint64_t at = limit(s, &e->link);
        if (e->is_wanted && e->link.state == SWN_ENGINE_IS_DOWN && !s->is_draining)
            at = e->start_at_ns;
        if (at && (!due || at < due))
            due = at;
    }
    return due;
}

void swn_engines_pump(struct swn_serving *s, uint64_t now)
{
    for (unsigned i = 0; i < SWN_ENGINES_MOST; i++) {
        struct swn_served_engine *e = &s->engines[i];
        uint64_t late = limit(s, &e->link);
        int is_idle = s->is_draining && !s->queue.count;
        if (late && late <= now) {
            swn_serve_say("engine %u has not answered in time; it is killed", i);
            swn_engine_link_kill(&e->link);
            died(s, i, now);
        }
        if (!e->is_wanted && e->link.state != SWN_ENGINE_IS_DOWN) {
            swn_serve_watch(s, e->link.socket, 0, 0);
            swn_engine_link_kill(&e->link);
            swn_engine_link_end(&e->link);
        }
        if (e->is_wanted && e->link.state == SWN_ENGINE_IS_DOWN && now >= e->start_at_ns && !is_idle)
            start(s, i, now);
        if (e->link.state == SWN_ENGINE_IS_UP) {
            swn_models_advance(s, i, now);
            swn_requests_run(s, i, now);
        }
    }
}
