/* scheduler/http/http.h - the HTTP side: connections, bodies, answers; on libmicrohttpd.
 *
 * Its threads read requests and write answers. Everything that has state is a job for the serving thread, and the
 * connection sleeps (is suspended) until the job is done, so a thread never waits for a model.
 */
#ifndef SWN_SCHEDULER_HTTP_HTTP_H
#define SWN_SCHEDULER_HTTP_HTTP_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/errmsg.h"
#include "scheduler/serve/serving.h"
#include "scheduler/http/tls_files.h"

struct swn_http_options {
    const char *address, *port;
    int socket;                      /* that listens already; -1: make one */
    const struct swn_tls_files *tls; /* while it starts; NULL: without TLS */
    unsigned threads, connections, connections_per_address;
    unsigned inferences;    /* at once, of all listeners */
    atomic_uint *inferring; /* how many there are: from the end of the body, or its begin if it is compressed, to the
                             * answer */
    unsigned idle_s;        /* a connection without a request */
    unsigned header_s;      /* from a request's first line to its last header */
    unsigned answer_s;      /* for an answer, besides what its bytes take at the least rate */
    uint64_t least_rate;    /* bytes a second in which bodies and answers have to go on */
    uint64_t body_most;
    size_t header_bytes; /* of a connection: its headers, and what is read at once */
    int is_for_metrics;  /* serves /metrics alone */
    int has_metrics;
    int is_verbose;
};

struct swn_http;

/* Whether the HTTP library can do TLS. */
int swn_http_has_tls(void);
/* 0, or -errno with `why` filled. */
int swn_http_start(struct swn_http **out, const struct swn_http_options *options, struct swn_serving *serving,
                   char why[SWN_ERRMSG]);
unsigned swn_http_port(const struct swn_http *h);
/* No more connections are accepted. */
void swn_http_quiesce(struct swn_http *h);
/* Ends connections that take too long. */
void swn_http_tick(struct swn_http *h);
size_t swn_http_requests(const struct swn_http *h);
size_t swn_http_connections(const struct swn_http *h);
/* All jobs are done. */
void swn_http_stop(struct swn_http *h);

#endif
