/* scheduler/serve/serve_party.c - see serve_party.h. */
#define _GNU_SOURCE
#include "scheduler/serve/serve_party.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/size.h"
#include "scheduler/protocol/daemon_socket.h"
#include "scheduler/protocol/lease_record.h"
#include "scheduler/protocol/wire.h"
#include "scheduler/serve/serving.h"

#define MS_NS UINT64_C(1000000)
#define START_NS (250 * MS_NS)
#define ALONE_NS (10000 * MS_NS)
#define FIRST_RETRY_NS (100 * MS_NS)
#define LAST_RETRY_NS (10000 * MS_NS)
/* Between two reports. */
#define LOOK_NS (1000 * MS_NS)

struct swn_serve_party {
    char path[PATH_MAX];
    char name[SWN_WIRE_NAME];
    double urgency;
    uint64_t cap, least;
    int link; /* the connection; -1: none */
    struct swn_lines in;
    uint64_t lease; /* in force; 0: none yet */
    uint64_t seq;   /* of a lease that is neither confirmed nor refused yet; 0: none */
    int gives_up;   /* goes on alone when no daemon comes */
    int is_alone;   /* no daemon came, so that --memory alone counts, until one gives a lease */
    int why;        /* the last attempt has failed */
    int has_warned;
    int has_news; /* a user has set something */
    unsigned chance;
    /* When a daemon was last seen, or another program still had its lease, or when the search for one began. */
    uint64_t seen_ns;
    uint64_t alone_ns, retry_ns, dial_ns, look_ns;
    struct swn_serve_party_needs said; /* as last reported */
};

/* ---- begin and end ---- */

int swn_serve_party_open(struct swn_serve_party **out, const struct swn_serve_party_options *o, char why[SWN_ERRMSG])
{
    const char *daemon = o->daemon && *o->daemon ? o->daemon : "auto";
    int is_path = *daemon == '/';
    struct swn_serve_party *p;

    *out = NULL;
    if (!strcmp(daemon, "off"))
        return 0;
    if (!is_path && strcmp(daemon, "auto") != 0)
        return swn_errmsg(why, -EINVAL,
                          "SWAPNET_DAEMON '%s' is no way to a daemon: use auto, off or the absolute path of its socket",
                          daemon);
    p = calloc(1, sizeof *p);
    if (!p)
        return swn_errmsg(why, -ENOMEM, "out of memory");
    int rc = is_path ? (strlen(daemon) >= sizeof p->path ? -ENAMETOOLONG : 0)
                     : swn_daemon_socket_find(p->path, sizeof p->path);
    if (rc) {
        if (rc == -EACCES)
            swn_serve_say("there is a swapnetd at %s that this user may not connect to, so the server is outside its "
                          "total; make the server a member of the socket's group, see swapnetd(8), or set "
                          "SWAPNET_DAEMON=off",
                          p->path);
        free(p);
        return is_path ? swn_errmsg(why, -ENAMETOOLONG, "SWAPNET_DAEMON is too long for a path") : 0;
    }
    if (is_path)
        strcpy(p->path, daemon);
    snprintf(p->name, sizeof p->name, "%s", o->name);
    p->urgency = o->urgency;
    p->cap = o->cap_bytes;
    p->least = o->least_bytes;
    p->gives_up = !is_path;
    p->link = -1;
    p->chance = (unsigned)getpid();
    p->alone_ns = o->alone_ns ? o->alone_ns : ALONE_NS;
    p->retry_ns = FIRST_RETRY_NS;
    p->seen_ns = swn_now_ns();
    swn_lines_init(&p->in);
    *out = p;
    return 0;
}

/* Goes on under the last lease, and tries again later. */
static void disconnect(struct swn_serve_party *p)
{
    if (p->link >= 0) {
        close(p->link);
        p->seen_ns = swn_now_ns();
        p->why = ECONNRESET;
    }
    p->link = -1;
    p->seq = 0;
    swn_lines_free(&p->in);
}

void swn_serve_party_close(struct swn_serve_party *p)
{
    if (!p)
        return;
    disconnect(p);
    free(p);
}

/* ---- what we say ---- */

/* A daemon that does not read for so long that its socket is full is as good as gone. */
static void say(struct swn_serve_party *p, const struct swn_wire *m)
{
    char line[1024];
    int n = swn_wire_encode(m, line, sizeof line - 1);
    ssize_t sent;

    if (n < 0 || p->link < 0)
        return;
    line[n] = '\n';
    do
        sent = send(p->link, line, (size_t)n + 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    if (sent != n + 1)
        disconnect(p);
}

static void fill_facts(struct swn_serve_party *p, struct swn_wire *m, const struct swn_serve_party_needs *n)
{
    m->has |= SWN_HAS_MINIMUM | SWN_HAS_DEMAND | SWN_HAS_WEIGHTS | SWN_HAS_RESIDENT | SWN_HAS_LATENCY |
              SWN_HAS_URGENCY | SWN_HAS_CAP;
    m->minimum = n->least_bytes;
    m->demand = n->demand_bytes > n->least_bytes ? n->demand_bytes : n->least_bytes;
    m->weights = n->weight_bytes;
    m->resident = n->resident_bytes;
    m->latency = n->latency_s;
    m->urgency = p->urgency;
    m->cap = p->cap;
    p->said = *n;
    p->has_news = 0;
}

static void hello(struct swn_serve_party *p, const struct swn_serve_party_needs *n, uint64_t now)
{
    struct swn_wire m = {
        .op = SWN_WIRE_HELLO, .has = SWN_HAS_VERSION | SWN_HAS_NAME | SWN_HAS_LEASE, .version = SWN_WIRE_VERSION};

    snprintf(m.name, sizeof m.name, "%s", p->name);
    if (p->lease || p->is_alone)
        m.lease = n->held_bytes > p->lease ? n->held_bytes : p->lease;
    fill_facts(p, &m, n);
    p->look_ns = now + LOOK_NS;
    say(p, &m);
}

/* Changes by less than an eighth are not reported, as each report may make all programs plan anew. */
static int differs(uint64_t a, uint64_t b)
{
    uint64_t more = a > b ? a - b : b - a;

    return more > a / 8 || (more && (!a || !b));
}

static int is_worth_saying(const struct swn_serve_party_needs *old, const struct swn_serve_party_needs *now)
{
    return differs(old->demand_bytes, now->demand_bytes) || differs(old->least_bytes, now->least_bytes) ||
           differs(old->weight_bytes, now->weight_bytes) || now->latency_s > old->latency_s * 1.25 ||
           now->latency_s < old->latency_s * 0.8;
}

static void report(struct swn_serve_party *p, const struct swn_serve_party_needs *n, uint64_t now)
{
    struct swn_wire m = {.op = SWN_WIRE_UPDATE, .has = SWN_HAS_RESIDENT, .resident = n->resident_bytes};

    if (p->has_news || is_worth_saying(&p->said, n))
        fill_facts(p, &m, n);
    p->look_ns = now + LOOK_NS;
    say(p, &m);
}

/* A smaller lease is confirmed when all engines are within it, and refused when they have said what they cannot do
 * without: the server then keeps what it has. */
static void settle(struct swn_serve_party *p, const struct swn_serve_party_needs *n)
{
    struct swn_wire m = {.seq = p->seq};

    if (n->held_bytes <= p->lease) {
        m.op = SWN_WIRE_ACK;
        m.has = SWN_HAS_SEQ | SWN_HAS_BUDGET | SWN_HAS_RESIDENT;
        m.budget = p->lease;
        m.resident = n->resident_bytes < p->lease ? n->resident_bytes : p->lease;
    } else if (n->is_settled) {
        m.op = SWN_WIRE_REFUSE;
        m.has = SWN_HAS_SEQ | SWN_HAS_MINIMUM | SWN_HAS_LEASE;
        m.minimum = n->least_bytes;
        m.lease = p->lease = n->held_bytes;
    } else {
        return;
    }
    p->seq = 0;
    say(p, &m);
}

/* ---- what we hear ---- */

static void take_line(struct swn_serve_party *p, const char *line, size_t length)
{
    struct swn_wire *m = malloc(sizeof *m);
    char why[SWN_WIRE_TEXT], mib[32];

    if (m && !swn_wire_decode(m, line, length, why)) {
        if (m->op == SWN_WIRE_LEASE) {
            if (p->has_warned || !p->lease)
                swn_serve_say("swapnetd at %s gives %s", p->path, swn_format_mib(mib, m->budget));
            p->retry_ns = FIRST_RETRY_NS;
            p->has_warned = p->is_alone = 0;
            p->lease = m->budget;
            p->seq = m->seq;
        } else if (m->op == SWN_WIRE_ERROR) {
            if (!p->has_warned++)
                swn_serve_say("swapnetd: %s", m->text);
            disconnect(p);
        }
    }
    free(m);
}

void swn_serve_party_hear(struct swn_serve_party *p, uint64_t now)
{
    size_t length;
    char *line;
    int rc;

    if (!p || p->link < 0)
        return;
    rc = swn_lines_fill(&p->in, p->link, (int64_t)(now / MS_NS));
    if (rc < 0 && rc != -EAGAIN) {
        disconnect(p);
        return;
    }
    while (p->link >= 0 && (line = swn_lines_next(&p->in, &length)))
        take_line(p, line, length);
}

/* ---- the connection ---- */

/* Whether the error may pass; other errors mean that no daemon will come. */
static int is_passing(int err)
{
    return err == EAGAIN || err == EINTR || err == EMFILE || err == ENFILE || err == ENOMEM || err == ENOBUFS;
}

static void warn(struct swn_serve_party *p)
{
    char mib[32];

    if (p->has_warned++)
        return;
    if (p->lease)
        swn_serve_say("swapnetd at %s is gone; going on under its last lease of %s", p->path,
                      swn_format_mib(mib, p->lease));
    else
        swn_serve_say("no swapnetd answers at %s: %s; going on with %s until one does", p->path, strerror(p->why),
                      swn_format_mib(mib, p->least));
}

/* No daemon is expected any more, and no other program has a lease of the one that was: all of --memory counts. */
static void go_on_alone(struct swn_serve_party *p, uint64_t now)
{
    char mib[32];

    if (swn_lease_held(p->path, getpid())) {
        p->seen_ns = now;
        warn(p);
        return;
    }
    p->is_alone = 1;
    swn_serve_say("no swapnetd answers at %s: %s; going on without, within %s", p->path, strerror(p->why),
                  swn_format_mib(mib, p->cap));
}

static void dial(struct swn_serve_party *p, const struct swn_serve_party_needs *n, uint64_t now)
{
    int fd = swn_daemon_connect(p->path);

    /* Spreads the attempts of many programs when a new daemon comes. */
    p->dial_ns = now + p->retry_ns / 2 + (uint64_t)rand_r(&p->chance) % p->retry_ns;
    p->retry_ns = p->retry_ns * 2 < LAST_RETRY_NS ? p->retry_ns * 2 : LAST_RETRY_NS;
    if (fd >= 0) {
        p->link = fd;
        hello(p, n, now);
        return;
    }
    p->why = -fd;
    if (is_passing(p->why))
        p->seen_ns = now;
    if (p->lease || !p->gives_up)
        warn(p);
}

/* When the search for a daemon ends; 0: it does not. */
static uint64_t last_dial(const struct swn_serve_party *p)
{
    return p->gives_up && !p->lease && !p->is_alone ? p->seen_ns + p->alone_ns : 0;
}

uint64_t swn_serve_party_due(const struct swn_serve_party *p)
{
    uint64_t at, last;

    if (!p)
        return 0;
    last = p->link < 0 ? last_dial(p) : 0;
    at = p->link < 0 ? p->dial_ns : p->look_ns;
    at = last && last < at ? last : at;
    return at ? at : 1;
}

int swn_serve_party_has_to_say(const struct swn_serve_party *p, uint64_t now)
{
    return p && ((p->link >= 0 && p->seq) || now >= swn_serve_party_due(p));
}

void swn_serve_party_say(struct swn_serve_party *p, const struct swn_serve_party_needs *n, uint64_t now)
{
    if (!p)
        return;
    p->least = n->least_bytes;
    if (p->link < 0) {
        uint64_t last = last_dial(p);
        dial(p, n, now);
        if (p->link < 0 && last && now >= last)
            go_on_alone(p, now);
        return;
    }
    if (p->seq)
        settle(p, n);
    if (p->link >= 0 && now >= p->look_ns)
        report(p, n, now);
}

void swn_serve_party_hurry(struct swn_serve_party *p)
{
    if (p)
        p->look_ns = 0;
}

void swn_serve_party_wish(struct swn_serve_party *p, uint64_t cap_bytes, double urgency)
{
    if (!p)
        return;
    p->cap = cap_bytes;
    p->urgency = urgency;
    p->has_news = 1;
    p->look_ns = 0;
}

void swn_serve_party_begin(struct swn_serve_party *p, const struct swn_serve_party_needs *n)
{
    uint64_t now = swn_now_ns(), until = now + START_NS;

    if (!p)
        return;
    swn_serve_party_say(p, n, now);
    while (p->link >= 0 && !p->lease && (now = swn_now_ns()) < until) {
        struct pollfd fd = {.fd = p->link, .events = POLLIN};
        poll(&fd, 1, (int)((until - now) / MS_NS) + 1);
        swn_serve_party_hear(p, swn_now_ns());
    }
}

/* ---- what is in force ---- */

uint64_t swn_serve_party_bytes(const struct swn_serve_party *p, uint64_t most)
{
    uint64_t bytes = !p ? most : p->lease ? p->lease : p->is_alone ? p->cap : p->least;

    return bytes < most ? bytes : most;
}

int swn_serve_party_socket(const struct swn_serve_party *p)
{
    return p ? p->link : -1;
}

const char *swn_serve_party_daemon(const struct swn_serve_party *p)
{
    return p && !p->is_alone ? p->path : NULL;
}
