/* scheduler/http/http_internal.h - what the files of the HTTP side share. */
#ifndef SWN_SCHEDULER_HTTP_HTTP_INTERNAL_H
#define SWN_SCHEDULER_HTTP_HTTP_INTERNAL_H

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>

#include "scheduler/http/http.h"
#include "scheduler/oip/oip_inflate.h"

#define SWN_HTTP_SMALL 65536 /* of bodies that are no inference */

/* A client's connection, in the list of all, so that the tick finds those that are late. */
struct swn_http_connection {
    struct swn_http_connection *prev, *next;
    int fd;
    size_t unheard, unheard_most; /* with TLS: bytes that came since something of HTTP did; and at most */
    uint64_t deadline_ns;         /* 0: none, the server has the request */
    uint64_t left_ns;             /* the deadline that it had when its client was seen to be gone */
    uint8_t is_answered;          /* an answer is being sent */
};

struct swn_http {
    struct swn_http_options options;
    struct swn_serving *serving;
    struct MHD_Daemon *daemon;
    int listen_fd, has_tls;
    unsigned port;
    atomic_size_t requests, connection_count;
    atomic_size_t loads;  /* and unloads, which may wait for minutes, also when their clients have left */
    atomic_size_t others; /* requests that are neither these, nor inferences, nor questions about health */
    pthread_mutex_t lock;
    struct swn_http_connection *connections;
};

/* From its first headers until the last byte of its answer is sent, or its connection has ended. */
struct swn_http_request {
    struct swn_job job; /* first */
    struct swn_http *http;
    struct MHD_Connection *connection;
    struct swn_http_connection *client;
    atomic_int holders; /* the connection, and an answer that is in its slots */
    enum { SWN_HTTP_READS, SWN_HTTP_WAITS, SWN_HTTP_HAS_ANSWER } phase;
    uint64_t began_ns;
    uint64_t length; /* of the body; UINT64_MAX: not said */
    uint64_t received;
    uint64_t json_bytes; /* what Inference-Header-Content-Length says; UINT64_MAX: nothing */
    uint8_t is_refused;  /* job.error says why; the body is read and left aside */
    uint8_t must_close;
    uint8_t has_place;         /* counted in options.inferring */
    atomic_size_t *counted_in; /* http->others or http->loads, or NULL */
    const char *allow;         /* with status 405: the methods that there are */
    struct swn_inflate *inflate;
    size_t used; /* of the body's slot, or of `small` */
    char *small;
    struct swn_slot body;               /* of an inference, until it is whole and becomes the job's */
    struct swn_slot text, packed, sent; /* the answer's JSON; all of it, compressed; its outputs while they are sent */
    struct swn_kept_slot *kept;         /* likewise, of an ensemble */
};

/* http_routes.c: what the request is about. 0, or -EINVAL with job.error filled; *allow: the methods that there are,
 * with status 405. */
int swn_http_route(struct swn_http_request *r, const char *path, const char *method, const char **allow);
/* Of a POST that is no inference, when its body is there. 0, or -EINVAL with job.error filled. */
int swn_http_read_small(struct swn_http_request *r);

/* http_infer.c */
int swn_http_infer_begin(struct swn_http_request *r);
int swn_http_infer_add(struct swn_http_request *r, const char *bytes, size_t count);
/* The body is there: to a job. All three: 0, or -EINVAL with job.error filled. */
int swn_http_infer_end(struct swn_http_request *r);
/* What the inference has, but for its answer; it may have nothing. */
void swn_http_infer_free(struct swn_http_request *r);
/* The answer, or NULL with job.error filled. */
struct MHD_Response *swn_http_infer_answer(struct swn_http_request *r, uint64_t *bytes);

/* http_tls.c: what an HTTP side with these files, or NULL, is started with. Returns flags. */
#define SWN_HTTP_TLS_OPTIONS 4
unsigned swn_http_tls_options(const struct swn_tls_files *files, struct MHD_OptionItem to[SWN_HTTP_TLS_OPTIONS]);
/* A connection with TLS is there. */
void swn_http_tls_begin(struct swn_http_connection *c, struct MHD_Connection *connection, size_t header_bytes);

/* http.c */
void swn_http_release(struct swn_http_request *r);

#endif
