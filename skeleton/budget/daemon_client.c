/* The connection to swapnetd, and the thread that keeps it. */
#define _GNU_SOURCE
#include "skeleton/budget/daemon_client.h"

#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/wakeup_pipe.h"
#include "scheduler/protocol/control.h"
#include "scheduler/protocol/control_io.h"
#include "scheduler/protocol/daemon_socket.h"
#include "skeleton/engine/engine_internal.h"
#include "skeleton/budget/memory_governor.h"
#include "scheduler/protocol/lease_record.h"
#include "skeleton/budget/demand.h"
#include "base/fd_registry.h"
#include "base/process.h"
#include "base/size.h"
#include "base/thread.h"
#include "scheduler/protocol/wire.h"
#include "skeleton/engine/accounting.h"
#include "skeleton/engine/section.h"

/* The longest delay of the program's start. A live daemon answers within a few milliseconds; if it has to take memory
 * from other processes first it may need more, and then the process begins with its minimum. */
#define START_MS 250
#define FIRST_RETRY_MS 100
#define LAST_RETRY_MS 10000
#define SEND_MS 1000
/* Interval of looks at the demand: while it changes; else once a second. */
#define LEAST_LOOK_MS 50
#define MOST_LOOK_MS 1000
#define CURVE_MS 5000
/* For `swapnetctl set`, which waits a second. */
#define SET_WAIT_MS 400

/* A daemon that was killed is started again after a second (RestartSec in the unit). */
int64_t swn_client_alone_ms = 10000;

struct swn_client {
    pthread_t thread;
    char path[PATH_MAX];
    int link;                      /* the connection; -1: none */
    struct swn_wakeup_pipe wakeup; /* there is something to do: a change is bound, or the user's wish has changed */
    struct swn_lines in;
    pthread_cond_t answered; /* the first lease has come, or none is expected for now */
    int tried;
    uint64_t lease; /* the lease in force; 0: none yet. Engine lock. */
    uint64_t seq;   /* of a lease that is not confirmed yet; 0: none */
    /* No daemon came, so that only the user's own budget counts, until a daemon gives a lease. Engine lock. */
    int alone;
    int gives_up; /* becomes standalone when no daemon comes */
    int why;      /* the last attempt has failed */
    /* When a daemon was last seen, or other processes still had its leases, or when the search for one began. */
    int64_t seen_ms;
    int64_t retry_ms, next_dial, look_ms, next_look, next_settle, next_curve;
    struct swn_demand said; /* the demand as last reported to the daemon */
    uint64_t said_cap;
    double said_urgency;
    int warned;
};

/* One change of the user's wish at a time, including those of the memory governor. Taken before the engine's lock. */
static pthread_mutex_t wishes = PTHREAD_MUTEX_INITIALIZER;
/* In a forked child: the budget that its parent had by a lease, which is the child's maximum while no daemon comes; or
 * 0. */
static uint64_t inherited;

/* ---- the budget in force ---- */

static uint64_t least_of(uint64_t cap, uint64_t lease)
{
    return cap && cap < lease ? cap : lease;
}

/* Continues under the last lease, and tries again later. */
static void disconnect(struct swn_client *c)
{
    if (c->link >= 0) {
        swn_fd_registry_close(c->link);
        c->seen_ms = swn_control_now_ms();
        c->why = ECONNRESET;
    }
    c->link = -1;
    c->seq = 0;
    swn_lines_free(&c->in);
}

static void say(struct swn_client *c, const struct swn_wire *m)
{
    char line[8192];
    int n = swn_wire_encode(m, line, sizeof line - 1);
    if (n < 0 || c->link < 0)
        return;
    line[n] = '\n';
    if (!swn_fd_is_ours(c->link) || swn_control_write(c->link, line, (size_t)n + 1, -1, swn_control_now_ms() + SEND_MS))
        disconnect(c);
}

static void confirm(struct swn_client *c)
{
    struct swn_engine *e = &swn_engine_one;
    struct swn_wire m = {.op = SWN_WIRE_ACK, .has = SWN_HAS_SEQ | SWN_HAS_BUDGET | SWN_HAS_RESIDENT};
    swn_lock(&e->lock);
    m.seq = c->seq;
    m.budget = c->lease;
    m.resident = swn_engine_resident(e);
    /* Without the budgeter's thread the limit is in force at once, and the program shrinks as it allocates. The cap may
     * change meanwhile; the daemon was promised the lease. */
    int bound = c->seq && e->budget.limit <= c->lease && m.resident <= c->lease;
    swn_unlock(&e->lock);
    if (bound) {
        c->seq = 0;
        say(c, &m);
    }
}

/* The memory that the process may be using: the limit on its way down, and resident bytes above it. */
static uint64_t held(const struct swn_client *c)
{
    struct swn_engine *e = &swn_engine_one;
    swn_lock(&e->lock);
    uint64_t bytes = c->lease, uses = swn_engine_resident(e);
    if (c->lease || c->alone) {
        uses = uses > e->budget.limit ? uses : e->budget.limit;
        bytes = uses > bytes ? uses : bytes;
    }
    swn_unlock(&e->lock);
    return bytes;
}

static void refuse(struct swn_client *c, uint64_t seq, uint64_t minimum)
{
    struct swn_wire m = {.op = SWN_WIRE_REFUSE,
                         .has = SWN_HAS_SEQ | SWN_HAS_MINIMUM | SWN_HAS_LEASE,
                         .seq = seq,
                         .minimum = minimum,
                         .lease = held(c)};
    c->seq = 0;
    say(c, &m);
}

/* If the process cannot run with `*bytes`: raises them to the least that it can, but never above what it has. */
static int clamp_to_minimum(uint64_t *bytes, const struct swn_budget_change *refused)
{
    struct swn_budget_change change;
    *bytes = least_of(refused->minimum_bytes, refused->budget_bytes);
    return swn_engine_set_budget(*bytes, 0, &change);
}

static void take_lease(struct swn_client *c, const struct swn_wire *m)
{
    struct swn_engine *e = &swn_engine_one;
    struct swn_budget_change change;
    swn_lock(&wishes); /* a wish that was cut to the old lease must not be applied after the new one */
    swn_lock(&e->lock);
    uint64_t before = c->lease, bytes = least_of(e->budget.user_cap, m->budget);
    c->lease = m->budget; /* before the limit moves: a cap that is set meanwhile stays within the new lease */
    swn_unlock(&e->lock);
    int err = swn_engine_set_budget(bytes, 0, &change);
    /* The cap may be unreachable, but not the lease. */
    if (err == -ERANGE && least_of(change.minimum_bytes, change.budget_bytes) <= m->budget)
        err = clamp_to_minimum(&bytes, &change);
    if (err == -ERANGE) {
        swn_lock(&e->lock);
        c->lease = before;
        swn_unlock(&e->lock);
    }
    swn_unlock(&wishes);
    if (err == -ERANGE) {
        refuse(c, m->seq, change.minimum_bytes);
    } else {
        c->seq = m->seq;
        confirm(c);
    }
    swn_lock(&e->lock);
    c->tried = 1;
    pthread_cond_broadcast(&c->answered);
    swn_unlock(&e->lock);
}

/* ---- what we say ---- */

static int differs(uint64_t a, uint64_t b)
{
    uint64_t more = a > b ? a - b : b - a;
    return more > a / 8 || (more && (!a || !b));
}

/* Changes by less than an eighth are not reported, as each report may make all processes plan anew. */
static int worth_saying(const struct swn_demand *old, const struct swn_demand *now)
{
    return differs(old->demand, now->demand) || differs(old->minimum, now->minimum) ||
           differs(old->weights, now->weights) || now->latency > old->latency * 1.25 ||
           now->latency < old->latency * 0.8;
}

static void fill_facts(struct swn_wire *m, const struct swn_client *c, const struct swn_demand *n, int curve)
{
    m->has |= SWN_HAS_MINIMUM | SWN_HAS_DEMAND | SWN_HAS_WEIGHTS | SWN_HAS_RESIDENT | SWN_HAS_LATENCY |
              SWN_HAS_URGENCY | SWN_HAS_CAP | (curve ? SWN_HAS_CURVE : 0u);
    m->minimum = n->minimum;
    m->demand = n->demand;
    m->weights = n->weights;
    m->resident = n->resident;
    m->latency = n->latency;
    m->urgency = c->said_urgency;
    m->cap = c->said_cap;
    m->points = n->points;
    memcpy(m->curve, n->curve, sizeof m->curve);
}

static void read_wishes(struct swn_client *c)
{
    struct swn_engine *e = &swn_engine_one;
    swn_lock(&e->lock);
    c->said_cap = e->budget.user_cap;
    c->said_urgency = e->budget.urgency;
    swn_unlock(&e->lock);
}

/* A change of the resident bytes alone is reported once a second. */
static void look(struct swn_client *c, int64_t now)
{
    struct swn_demand n = c->said;
    uint64_t cap = c->said_cap;
    double urgency = c->said_urgency;
    int settle = now >= c->next_settle, curve = 0;
    swn_demand_read(&n, settle);
    if (settle)
        c->next_settle = now + 1000;
    if (n.plans != c->said.plans && now >= c->next_curve) {
        swn_demand_curve(&n);
        c->next_curve = now + CURVE_MS;
        curve = 1;
    }
    uint64_t plans = curve ? n.plans : c->said.plans;
    read_wishes(c);
    int news = curve || worth_saying(&c->said, &n) || c->said_cap != cap || c->said_urgency > urgency ||
               c->said_urgency < urgency;
    if (news || settle) {
        struct swn_wire m = {.op = SWN_WIRE_UPDATE};
        if (news)
            fill_facts(&m, c, &n, curve);
        else
            m.has = SWN_HAS_RESIDENT, m.resident = n.resident;
        if (news)
            c->said = n;
        say(c, &m);
    }
    c->said.plans = plans;
    c->look_ms = news ? LEAST_LOOK_MS : c->look_ms * 2 < MOST_LOOK_MS ? c->look_ms * 2 : MOST_LOOK_MS;
    c->next_look = now + c->look_ms;
}

static void hello(struct swn_client *c)
{
    struct swn_wire m = {
        .op = SWN_WIRE_HELLO, .has = SWN_HAS_VERSION | SWN_HAS_NAME | SWN_HAS_LEASE, .version = SWN_WIRE_VERSION};
    const char *given = swn_engine_one.config.name; /* never changes */
    snprintf(m.name, sizeof m.name, "%s", given[0] ? given : program_invocation_short_name);
    for (char *p = m.name; *p; p++) /* a program's name may have any bytes */
        if ((unsigned char)*p >= 0x80)
            *p = '?';
    m.lease = held(c);
    read_wishes(c);
    swn_demand_read(&c->said, 0);
    fill_facts(&m, c, &c->said, c->said.points != 0);
    say(c, &m);
    int64_t now = swn_control_now_ms();
    c->look_ms = LEAST_LOOK_MS;
    c->next_look = now + c->look_ms;
}

/* ---- the thread ---- */

static void give_up_for_now(struct swn_client *c)
{
    struct swn_engine *e = &swn_engine_one;
    swn_lock(&e->lock);
    c->tried = 1;
    pthread_cond_broadcast(&c->answered);
    swn_unlock(&e->lock);
}

/* Whether the error may pass; other errors mean that no daemon will come. */
static int is_passing(int err)
{
    return err == EAGAIN || err == EINTR || err == EMFILE || err == ENFILE || err == ENOMEM || err == ENOBUFS;
}

static void connect_now(struct swn_client *c)
{
    int fd = swn_daemon_connect(c->path);
    if (fd >= 0) {
        c->link = swn_fd_registry(fd);
        hello(c);
        return;
    }
    char mib[32];
    c->why = -fd;
    if (is_passing(c->why))
        c->seen_ms = swn_control_now_ms();
    if (c->lease && !c->warned++)
        swn_say("swapnetd at %s is gone; going on under its last lease of %s", c->path, swn_format_mib(mib, c->lease));
    else if (!c->lease && !c->gives_up && !c->warned++)
        swn_say("no swapnetd answers at %s: %s; going on with %s until one does", c->path, strerror(-fd),
                swn_format_mib(mib, swn_engine_one.budget.target));
    give_up_for_now(c);
}

/* The budget without a daemon: a child has its parent's. */
static uint64_t memory_alone(void)
{
    return inherited ? inherited : (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Whether other processes still have leases of a dead daemon: the memory is theirs, and the next daemon counts it, so
 * this process keeps to its minimum. */
static int waits_for_others(struct swn_client *c)
{
    char mib[32];
    if (!swn_lease_held(c->path, getpid()))
        return 0;
    c->seen_ms = swn_control_now_ms();
    if (!c->warned++)
        swn_say(
            "no swapnetd answers at %s: %s; going on with %s until one does, or no program with a lease of it is left",
            c->path, strerror(c->why), swn_format_mib(mib, swn_engine_one.budget.target));
    return 1;
}

/* No daemon is expected any more: the process runs as if there had been none at its start. If one comes nevertheless,
 * the process obeys it. */
static void run_standalone(struct swn_client *c)
{
    struct swn_engine *e = &swn_engine_one;
    struct swn_budget_change change;
    char mib[32];
    swn_lock(&wishes);
    swn_lock(&e->lock);
    c->alone = 1;
    uint64_t all = memory_alone(), bytes = least_of(e->budget.user_cap, all);
    int forked = e->life.forked;
    swn_unlock(&e->lock);
    if (swn_engine_set_budget(bytes, 0, &change) == -ERANGE) /* the cap is below the minimum */
        clamp_to_minimum(&bytes, &change);
    swn_unlock(&wishes);
    if (!forked) /* the parent says it */
        swn_say("no swapnetd answers at %s: %s; going on without, within %s%s", c->path, strerror(c->why),
                swn_format_mib(mib, bytes),
                bytes == all && !inherited ? ", all memory there is: SWAPNET_BUDGET is not set" : "");
}

static void take_line(struct swn_client *c, const char *line, size_t len)
{
    struct swn_wire *m = malloc(sizeof *m);
    char why[SWN_WIRE_TEXT];
    if (m && !swn_wire_decode(m, line, len, why)) {
        if (m->op == SWN_WIRE_LEASE) {
            c->retry_ms = FIRST_RETRY_MS; /* not at once, either, if the daemon disconnects after each lease */
            c->warned = 0;
            take_lease(c, m);
        } else if (m->op == SWN_WIRE_ERROR) {
            if (!c->warned++)
                swn_say("swapnetd: %s", m->text);
            disconnect(c);
            give_up_for_now(c);
        }
    }
    free(m);
}

static void take_input(struct swn_client *c)
{
    size_t len;
    char *line;
    int rc = swn_lines_fill(&c->in, c->link, swn_control_now_ms());
    if (rc < 0 && rc != -EAGAIN) {
        disconnect(c);
        return;
    }
    while (c->link >= 0 && (line = swn_lines_next(&c->in, &len)))
        take_line(c, line, len);
}

/* Waits for something to do, at most until the next look; a wait that fails must not spin. */
static void wait_for(struct swn_client *c, int64_t wait_ms)
{
    /* poll ignores descriptors that the program has closed; without the wakeup pipe the next look finds the same, a
     * little later */
    struct pollfd p[2] = {{.fd = swn_wakeup_pipe_poll_fd(&c->wakeup), .events = POLLIN},
                          {.fd = swn_fd_is_ours(c->link) ? c->link : -1, .events = POLLIN}};
    if (c->link >= 0 && p[1].fd < 0)
        disconnect(c);
    if (poll(p, 2, wait_ms < 0 ? 0 : (int)wait_ms) < 0)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    if (p[0].revents && swn_wakeup_pipe_drain(&c->wakeup))
        c->next_look = 0;
    if (p[1].revents && swn_fd_is_ours(c->link))
        take_input(c);
}

/* Connects, unless the last attempt is too recent. A daemon that answers and refuses is not asked more often than one
 * that is absent. */
static void try_again(struct swn_client *c, unsigned *chance)
{
    int64_t now = swn_control_now_ms();
    int64_t last = c->gives_up && !c->lease && !c->alone ? c->seen_ms + swn_client_alone_ms : INT64_MAX;
    int64_t next = last < c->next_dial ? last : c->next_dial;
    if (now < next) {
        wait_for(c, next - now);
        return;
    }
    /* spreads the attempts of many processes when a new daemon comes */
    c->next_dial = now + c->retry_ms / 2 + (int64_t)((unsigned)rand_r(chance) % (unsigned)c->retry_ms);
    c->retry_ms = c->retry_ms * 2 < LAST_RETRY_MS ? c->retry_ms * 2 : LAST_RETRY_MS;
    connect_now(c);
    if (c->link < 0 && last < INT64_MAX && swn_control_now_ms() >= c->seen_ms + swn_client_alone_ms &&
        !waits_for_others(c))
        run_standalone(c);
}

static void *client_main(void *arg)
{
    struct swn_client *c = arg;
    unsigned chance = (unsigned)getpid();
    swn_thread_stays();
    pthread_setname_np(pthread_self(), SWN_CLIENT_THREAD); /* the daemon looks for this name */
    for (;;) {
        if (c->link < 0) {
            try_again(c, &chance);
            continue;
        }
        wait_for(c, c->next_look - swn_control_now_ms());
        if (c->seq)
            confirm(c);
        int64_t now = swn_control_now_ms();
        if (c->link >= 0 && now >= c->next_look)
            look(c, now);
    }
    return NULL;
}

static void await_answer(struct swn_engine *e, struct swn_client *c)
{
    uint64_t until = swn_now_ns() + START_MS * 1000000ull;
    swn_lock(&e->lock);
    while (!c->tried && swn_cond_wait_until(&c->answered, &e->lock, until) != ETIMEDOUT)
        ;
    swn_unlock(&e->lock);
}

void swn_client_start(const struct swn_config *config)
{
    struct swn_engine *e = &swn_engine_one;
    if (!config->daemon_path[0])
        return;
    struct swn_client *c = calloc(1, sizeof *c);
    int err = c ? 0 : -ENOMEM;
    if (!err) {
        strcpy(c->path, config->daemon_path);
        c->link = -1;
        c->retry_ms = FIRST_RETRY_MS;
        c->gives_up = config->daemon == SWN_DAEMON_AUTO;
        c->seen_ms = swn_control_now_ms();
        swn_lines_init(&c->in);
        swn_cond_init(&c->answered);
        c->warned = e->life.forked; /* the parent says it */
        err = swn_wakeup_pipe_open(&c->wakeup);
    }
    if (!err) {
        swn_lock(&e->lock);
        e->budget.client = c;
        swn_unlock(&e->lock);
        err = swn_thread_start(&c->thread, client_main, c);
    }
    if (err)
        swn_say("cannot register with swapnetd: %s; going on with the minimum", strerror(-err));
    else
        await_answer(e, c);
}

static uint64_t lease_now(struct swn_engine *e)
{
    swn_lock(&e->lock);
    uint64_t lease = e->budget.client ? e->budget.client->lease : 0;
    swn_unlock(&e->lock);
    return lease;
}

void swn_client_after_fork(void)
{
    struct swn_engine *e = &swn_engine_one;
    struct swn_budget_change change;
    int yes = 1;
    if (!atomic_load_explicit(&e->life.want_client, memory_order_relaxed) ||
        !atomic_compare_exchange_strong(&e->life.want_client, &yes, 0))
        return;
    swn_memory_governor_start(&e->config);
    swn_client_start(&e->config);
    if (!e->config.daemon_path[0])
        return;
    swn_lock(&wishes);
    if (!lease_now(e))
        swn_engine_set_budget(swn_budget_unasked(e->budget.user_cap), 0,
                              &change); /* the previous budget was the parent's lease */
    swn_unlock(&wishes);
}

void swn_client_wake(struct swn_engine *e)
{
    if (e->budget.client)
        (void)swn_wakeup_pipe_signal(&e->budget.client->wakeup);
}

/* The parent's connection and lease are not the child's. But many children never use a tensor, so the child does not
 * connect yet. */
void swn_client_fork_child(struct swn_engine *e)
{
    struct swn_client *c = e->budget.client;
    if (c) {
        if (c->link >= 0)
            swn_fd_registry_close(c->link);
        swn_wakeup_pipe_close(&c->wakeup);
        if (c->lease)
            inherited = e->budget.target; /* else the parent's budget came from its own settings */
    }
    if (e->config.daemon_path[0]) /* also where the parent was about to register */
        atomic_store(&e->life.want_client, 1);
    e->budget.client = NULL;
    pthread_mutex_init(&wishes, NULL);
}

/* ---- the user's wish, through the process's own socket ---- */

/* The budget that results from a wish for `bytes`. Without a lease the wish is cut to the present target, which a later
 * lease may raise. Lock held. */
static uint64_t within_lease(const struct swn_engine *e, uint64_t bytes)
{
    const struct swn_client *c = e->budget.client;
    if (!c || (c->alone && !c->lease))
        return c && inherited ? least_of(bytes, inherited) : bytes;
    return least_of(bytes, c->lease ? c->lease : e->budget.target);
}

const char *swn_client_daemon(const struct swn_engine *e)
{
    const struct swn_client *c = e->budget.client;
    return c && (c->lease || !c->alone) ? c->path : NULL;
}

void swn_client_cap(struct swn_engine *e, uint64_t bytes)
{
    struct swn_budget_change change;
    swn_lock(&wishes);
    swn_lock(&e->lock);
    int follows = swn_memory_governor_on();
    if (follows) {
        e->budget.user_cap = bytes;
        bytes = within_lease(e, bytes);
        swn_client_wake(e);
    }
    swn_unlock(&e->lock);
    if (follows && swn_engine_set_budget(bytes, 0, &change) == -ERANGE)
        clamp_to_minimum(&bytes, &change);
    swn_unlock(&wishes);
}

static char *answer(json_t *root)
{
    char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    return text;
}

static char *refusal(uint64_t minimum)
{
    char text[128], mib[32];
    snprintf(text, sizeof text, "it needs at least %s", swn_format_mib(mib, minimum));
    return answer(json_pack("{s:i s:s s:I}", "schema", 1, "error", text, "minimum_bytes", (json_int_t)minimum));
}

static char *set(struct swn_engine *e, unsigned has, uint64_t budget, double urgency)
{
    struct swn_budget_change change = {0};
    swn_lock(&e->lock);
    struct swn_client *c = e->budget.client;
    uint64_t bytes = within_lease(e, budget);
    if (!(has & SWN_HAS_BUDGET) || ((c || swn_memory_governor_runs()) && !budget))
        bytes = !c || !(has & SWN_HAS_BUDGET)             ? e->budget.target
                : c->lease                                ? c->lease
                : c->alone && !swn_memory_governor_runs() ? memory_alone()
                                                          : e->budget.target;
    swn_unlock(&e->lock);
    int err = swn_engine_set_budget(bytes, SET_WAIT_MS, &change);
    if (err == -ERANGE)
        return refusal(change.minimum_bytes);
    swn_lock(&e->lock);
    if (has & SWN_HAS_BUDGET) {
        e->budget.user_cap = budget;
        swn_memory_governor_switch(!budget);
    }
    if (has & SWN_HAS_URGENCY)
        e->budget.urgency = urgency;
    double now = e->budget.urgency;
    swn_client_wake(e);
    swn_unlock(&e->lock);
    return answer(json_pack("{s:i s:I s:I s:I s:f s:b s:I s:I}", "schema", 1, "pid", (json_int_t)getpid(),
                            "budget_bytes", (json_int_t)change.budget_bytes, "minimum_bytes",
                            (json_int_t)change.minimum_bytes, "urgency", now, "bound", change.bound, "took_ns",
                            (json_int_t)change.took_ns, "spilled_bytes", (json_int_t)change.spilled_bytes));
}

char *swn_client_set(void *engine, unsigned has, uint64_t budget, double urgency)
{
    swn_lock(&wishes);
    char *text = set(engine, has, budget, urgency);
    swn_unlock(&wishes);
    return text;
}
