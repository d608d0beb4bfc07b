/* scheduler/daemon/requests.c - the requests of swapnetctl to swapnetd. Every user who may connect may look; only root
 * and the daemon's own user may change anything, since one process gets the memory that another one loses. */
#define _GNU_SOURCE
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "scheduler/daemon/daemon.h"
#include "base/size.h"

static void answer(struct swd_client *c, json_t *root)
{
    char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
    if (text)
        swd_send(c, text, strlen(text));
    else
        c->failed = 1;
    free(text);
    json_decref(root);
}

void swd_answer_error(struct swd_client *c, const char *text)
{
    answer(c, json_pack("{s:i s:s s:s s:s}", "schema", 1, "op", "error", "error", text, "text", text));
}

static json_t *bytes_or_null(uint64_t bytes)
{
    return bytes ? json_integer((json_int_t)bytes) : json_null();
}

static json_t *process(const struct swn_client_lease *p, int64_t now_ms)
{
    return json_pack("{s:I s:I s:s s:I s:I s:o s:I s:I s:I s:I s:f s:f s:s}", "pid", (json_int_t)p->pid, "uid",
                     (json_int_t)p->uid, "name", p->name, "budget_bytes", (json_int_t)p->lease, "counted_bytes",
                     (json_int_t)p->ceiling, "set_budget_bytes", bytes_or_null(p->set.budget), "minimum_bytes",
                     (json_int_t)p->minimum, "demand_bytes", (json_int_t)p->demand, "weight_bytes",
                     (json_int_t)p->weights, "resident_bytes", (json_int_t)swn_client_lease_resident(p), "latency_s",
                     p->latency, "urgency", swn_client_lease_urgency(p), "state", swn_client_lease_state(p, now_ms));
}

static void list(struct swd *d, struct swd_client *c)
{
    json_t *processes = json_array();
    int64_t now = swd_now_ms();
    for (const struct swn_client_lease *p = d->book.first; p; p = p->next)
        json_array_append_new(processes, process(p, now));
    answer(c, json_pack("{s:i s:s s:I s:I s:b s:s s:b s:o}", "schema", 1, "version", SWAPNET_VERSION, "total_bytes",
                        (json_int_t)d->book.total, "leased_bytes", (json_int_t)swn_book_sum(&d->book), "follows_memory",
                        !swd_fixed_total(d), "policy", swn_divide_name(d->book.policy), "draining", d->book.draining,
                        "processes", processes));
}

static int may_change(const struct swd_client *c)
{
    return c->peer.uid == 0 || c->peer.uid == geteuid();
}

/* By pid, or by a name that only one process has. */
static struct swn_client_lease *party_named(struct swd *d, const struct swn_wire *m, char why[SWN_WIRE_TEXT])
{
    struct swn_client_lease *found = NULL;
    size_t hits = 0;
    for (struct swn_client_lease *p = d->book.first; p; p = p->next)
        if (m->has & SWN_HAS_PID ? (uint64_t)p->pid == m->pid : !strcmp(p->name, m->name)) {
            found = p;
            hits++;
        }
    if (hits != 1)
        snprintf(why, SWN_WIRE_TEXT, hits ? "%zu processes have that name: give the number of one" : "no such process",
                 hits);
    return hits == 1 ? found : NULL;
}

static void set(struct swd *d, struct swd_client *c, const struct swn_wire *m)
{
    char why[SWN_WIRE_TEXT] = "", mib[32];
    uint64_t limit = 0;
    if (!(m->has & (SWN_HAS_PID | SWN_HAS_NAME)) || !(m->has & (SWN_HAS_BUDGET | SWN_HAS_URGENCY))) {
        swd_answer_error(c, "set needs a pid or a name, and a budget or an urgency");
        return;
    }
    struct swn_client_lease *p = party_named(d, m, why);
    int rc = p ? swn_book_set(&d->book, p, m->has, m->budget, m->urgency, &limit, swd_now_ms()) : -ESRCH;
    if (rc == -ERANGE)
        snprintf(why, sizeof why, "it needs at least %s", swn_format_mib(mib, limit));
    else if (rc == -EDQUOT)
        snprintf(why, sizeof why,
                 "its own budget, which it was started with or that follows memory, lets it take %s at most: set no "
                 "more, or change that first, by SWAPNET_DAEMON=off swapnetctl set",
                 swn_format_mib(mib, limit));
    else if (rc == -ENOSPC)
        snprintf(why, sizeof why, "the others leave %s at most", swn_format_mib(mib, limit));
    if (rc)
        swd_answer_error(c, why);
    else
        answer(c, json_pack("{s:i s:I s:I s:f}", "schema", 1, "pid", (json_int_t)p->pid, "budget_bytes",
                            (json_int_t)p->lease, "urgency", swn_client_lease_urgency(p)));
}

static int by_bytes(const void *a, const void *b)
{
    uint64_t x = swn_client_lease_least(*(struct swn_client_lease *const *)a),
             y = swn_client_lease_least(*(struct swn_client_lease *const *)b);
    return (x < y) - (x > y);
}

/* The processes that keep the leases above the total, largest first; NULL: there are none, or out of memory. */
static json_t *keepers(const struct swn_book *b)
{
    struct swn_client_lease **all = swn_book_least(b) > b->total ? calloc(b->count, sizeof *all) : NULL;
    size_t n = 0;
    if (!all)
        return NULL;
    for (struct swn_client_lease *p = b->first; p; p = p->next)
        if (swn_client_lease_least(p))
            all[n++] = p;
    qsort(all, n, sizeof *all, by_bytes);
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_pack("{s:I s:s s:I s:b}", "pid", (json_int_t)all[i]->pid, "name", all[i]->name,
                                              "bytes", (json_int_t)swn_client_lease_least(all[i]), "away",
                                              !all[i]->attached));
    free(all);
    return list;
}

/* The new total counts at once. Each process keeps the memory that it needs, or says it needs, as it could not finish
 * without. But no other process gets any of it, and as processes end the leases come down to the total. */
static void total(struct swd *d, struct swd_client *c, uint64_t bytes)
{
    if (bytes && bytes < SWN_BUDGET_UNASKED_BYTES) {
        swd_answer_error(c, "the total has to be 8 MiB at least");
        return;
    }
    if (bytes)
        d->total.set = d->book.total = bytes;
    else
        bytes = swd_total_auto(d);
    d->book.dirty = 1;
    swn_book_balance(&d->book, swd_now_ms());
    json_t *root = json_pack("{s:i s:I s:I s:I}", "schema", 1, "total_bytes", (json_int_t)bytes, "leased_bytes",
                             (json_int_t)swn_book_sum(&d->book), "least_bytes", (json_int_t)swn_book_least(&d->book));
    json_t *list = keepers(&d->book);
    if (root && list)
        json_object_set(root, "keepers", list);
    json_decref(list);
    answer(c, root);
}

static void drain(struct swd *d, struct swd_client *c)
{
    d->book.draining = d->book.dirty = 1;
    answer(c, json_pack("{s:i s:b s:I}", "schema", 1, "draining", 1, "processes", (json_int_t)d->book.count));
}

void swd_answer(struct swd *d, struct swd_client *c, const struct swn_wire *m)
{
    int changes = m->op == SWN_WIRE_SET || m->op == SWN_WIRE_TOTAL || m->op == SWN_WIRE_DRAIN;
    if (changes && !may_change(c))
        swd_answer_error(c, "only root and the user that swapnetd runs as may change that");
    else if (m->op == SWN_WIRE_STATUS || m->op == SWN_WIRE_LIST)
        list(d, c);
    else if (m->op == SWN_WIRE_ASK_VERSION)
        answer(c, json_pack("{s:i s:s s:i}", "schema", 1, "version", SWAPNET_VERSION, "protocol", SWN_WIRE_VERSION));
    else if (m->op == SWN_WIRE_SET)
        set(d, c, m);
    else if (m->op == SWN_WIRE_TOTAL)
        total(d, c, m->budget);
    else if (m->op == SWN_WIRE_DRAIN)
        drain(d, c);
    else
        swd_answer_error(c, "unknown op");
}
