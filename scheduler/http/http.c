/* scheduler/http/http.c - connections and their requests: see http.h.
 *
 * A request that is refused before its body has come is answered when the body has been read and left aside, so that
 * the client gets the answer and can go on with the connection; only a body of which too much is to come ends it.
 * libmicrohttpd does not look at a connection that sleeps; the serving thread watches its socket.
 */
#define _GNU_SOURCE
#include "scheduler/http/http.h"

#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "scheduler/http/http_internal.h"
#include "scheduler/oip/oip_answer.h"

/* At once: loads and unloads, and requests that are neither these, nor inferences, nor questions about health. */
#define LOADS_MOST 64
#define OTHERS_MOST 64
/* Of a refused body so much is read: what a client sends before it looks for an answer. */
#define LEFT_ASIDE_MOST (UINT64_C(64) << 20)
#define SECOND UINT64_C(1000000000)
/* Connections that the tick asks the kernel about at once. */
#define LOOKED_AT 256

/* ---- connections ---- */

static void set_times(struct swn_http *h, struct swn_http_connection *c, uint64_t ns, uint8_t is_answered)
{
    if (!c)
        return;
    pthread_mutex_lock(&h->lock);
    c->deadline_ns = ns ? swn_now_ns() + ns : 0;
    c->is_answered = is_answered;
    pthread_mutex_unlock(&h->lock);
}

static void set_deadline(struct swn_http *h, struct swn_http_connection *c, uint64_t ns)
{
    set_times(h, c, ns, 0);
}

/* What so many bytes may take at the least rate. */
static uint64_t transfer_ns(const struct swn_http *h, uint64_t bytes)
{
    uint64_t seconds = bytes / (h->options.least_rate ? h->options.least_rate : 1);
    return seconds < UINT64_MAX / SECOND / 2 ? seconds * SECOND : UINT64_MAX / 2;
}

static void open_connection(struct swn_http *h, struct MHD_Connection *connection, void **context)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct swn_http_connection *c = calloc(1, sizeof *c);

    *context = c;
    atomic_fetch_add(&h->connection_count, 1);
    if (!c || !info)
        return;
    c->fd = info->connect_fd;
    if (h->has_tls)
        swn_http_tls_begin(c, connection, h->options.header_bytes);
    pthread_mutex_lock(&h->lock);
    /* A handshake takes as long as headers may, and the first request follows it. */
    c->deadline_ns = swn_now_ns() + (h->has_tls ? h->options.header_s : h->options.idle_s) * SECOND;
    c->next = h->connections;
    if (c->next)
        c->next->prev = c;
    h->connections = c;
    pthread_mutex_unlock(&h->lock);
}

/* Called before its socket is closed: the tick never ends another connection of the same number. */
static void close_connection(struct swn_http *h, struct swn_http_connection *c)
{
    atomic_fetch_sub(&h->connection_count, 1);
    if (!c)
        return;
    pthread_mutex_lock(&h->lock);
    if (c->prev)
        c->prev->next = c->next;
    else
        h->connections = c->next;
    if (c->next)
        c->next->prev = c->prev;
    pthread_mutex_unlock(&h->lock);
    free(c);
}

static void on_connection(void *cls, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        open_connection(cls, connection, context);
    else
        close_connection(cls, *context);
}

static struct swn_http_connection *connection_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

/* HTTP has come: see http_tls.c. */
static void hear(struct swn_http_connection *c)
{
    if (c)
        c->unheard = 0;
}

/* A request's first line is there. */
static void *on_first_line(void *cls, const char *uri, struct MHD_Connection *connection)
{
    struct swn_http *h = cls;

    (void)uri;
    set_deadline(h, connection_of(connection), h->options.header_s * SECOND);
    hear(connection_of(connection));
    return NULL;
}

static void end_connection(struct swn_http_connection *c)
{
    shutdown(c->fd, SHUT_RDWR);
    c->deadline_ns = 0;
}

/* Ends those among the connections whose clients have left: libmicrohttpd, which waits for edges, does not see an end
 * that comes together with bytes, and would keep the connection until its time is over. One that is seen twice with
 * nothing done between has no request in libmicrohttpd's own memory either. */
static void end_abandoned(struct swn_http_connection *const *list, struct pollfd *fds, nfds_t count)
{
    char byte;

    if (count == 0 || poll(fds, count, 0) <= 0)
        return;
    for (nfds_t i = 0; i < count; i++) {
        if (!(fds[i].revents & (POLLRDHUP | POLLHUP | POLLERR)) ||
            recv(fds[i].fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0)
            continue;
        if (list[i]->left_ns == list[i]->deadline_ns)
            end_connection(list[i]);
        else
            list[i]->left_ns = list[i]->deadline_ns;
    }
}

void swn_http_tick(struct swn_http *h)
{
    struct swn_http_connection *list[LOOKED_AT];
    struct pollfd fds[LOOKED_AT];
    uint64_t now = swn_now_ns();
    nfds_t count = 0;

    pthread_mutex_lock(&h->lock);
    for (struct swn_http_connection *c = h->connections; c; c = c->next) {
        if (c->deadline_ns && c->deadline_ns <= now)
            end_connection(c);
        if (!c->deadline_ns || c->is_answered)
            continue;
        list[count] = c;
        fds[count++] = (struct pollfd){.fd = c->fd, .events = POLLRDHUP};
        if (count == LOOKED_AT) {
            end_abandoned(list, fds, count);
            count = 0;
        }
    }
    end_abandoned(list, fds, count);
    pthread_mutex_unlock(&h->lock);
}

/* ---- requests ---- */

static struct swn_http_request *new_request(struct swn_http *h, struct MHD_Connection *connection)
{
    struct swn_http_request *r = calloc(1, sizeof *r);

    if (!r)
        return NULL;
    r->http = h;
    r->connection = connection;
    r->client = connection_of(connection);
    r->job.client = r->client ? r->client->fd : -1;
    r->job.error.status = 200;
    r->json_bytes = UINT64_MAX;
    atomic_init(&r->holders, 1);
    atomic_fetch_add(&h->requests, 1);
    return r;
}

void swn_http_release(struct swn_http_request *r)
{
    struct swn_buffer *buffer = swn_serving_buffer(r->http->serving);

    if (atomic_fetch_sub(&r->holders, 1) != 1)
        return;
    swn_http_infer_free(r);
    swn_slot_give(buffer, &r->body);
    swn_slot_give(buffer, &r->text);
    swn_slot_give(buffer, &r->packed);
    swn_slot_give(buffer, &r->sent);
    swn_kept_slots_give(buffer, &r->kept);
    free(r->job.body);
    free(r->small);
    free(r);
}

static void on_completed(void *cls, struct MHD_Connection *connection, void **context,
                         enum MHD_RequestTerminationCode code)
{
    struct swn_http *h = cls;
    struct swn_http_request *r = *context;

    (void)connection;
    (void)code;
    if (!r)
        return;
    *context = NULL;
    hear(r->client);
    set_deadline(h, r->client, h->options.idle_s * SECOND);
    if (r->counted_in)
        atomic_fetch_sub(r->counted_in, 1);
    swn_http_release(r);
    atomic_fetch_sub(&h->requests, 1);
}

/* On the serving thread. */
static void job_done(struct swn_job *job)
{
    struct swn_http_request *r = (struct swn_http_request *)job;

    r->phase = SWN_HTTP_HAS_ANSWER;
    MHD_resume_connection(r->connection);
}

/* ---- answers ---- */

static enum MHD_Result queue(struct swn_http_request *r, struct MHD_Response *response, int status, uint64_t bytes)
{
    enum MHD_Result result;

    if (r->must_close || swn_serving_is_draining(r->http->serving))
        MHD_add_response_header(response, "Connection", "close");
    set_times(r->http, r->client, r->http->options.answer_s * SECOND + transfer_ns(r->http, bytes), 1);
    result = MHD_queue_response(r->connection, (unsigned)status, response);
    MHD_destroy_response(response);
    return result;
}

/* 499: nobody listens, and whatever is sent is lost. */
static enum MHD_Result answer_error(struct swn_http_request *r)
{
    char body[SWN_OIP_ERROR_BODY];
    size_t bytes = swn_oip_error_body(&r->job.error, body);
    struct MHD_Response *response = MHD_create_response_from_buffer(bytes, body, MHD_RESPMEM_MUST_COPY);

    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, "Content-Type", "application/json");
    if (r->job.error.status == 503)
        MHD_add_response_header(response, "Retry-After", "1");
    if (r->allow)
        MHD_add_response_header(response, "Allow", r->allow);
    return queue(r, response, r->job.error.status, bytes);
}

static enum MHD_Result answer_text(struct swn_http_request *r)
{
    struct MHD_Response *response =
        r->job.body ? MHD_create_response_from_buffer(r->job.body_bytes, r->job.body, MHD_RESPMEM_MUST_FREE)
                    : MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);

    if (!response)
        return MHD_NO;
    if (r->job.body)
        MHD_add_response_header(response, "Content-Type",
                                r->job.kind == SWN_JOB_METRICS ? "text/plain; version=0.0.4; charset=utf-8"
                                                               : "application/json");
    r->job.body = NULL; /* the response's */
    return queue(r, response, 200, r->job.body_bytes);
}

static enum MHD_Result answer(struct swn_http_request *r)
{
    struct MHD_Response *response;
    uint64_t bytes;

    if (r->job.error.status != 200)
        return answer_error(r);
    if (r->job.kind != SWN_JOB_INFER)
        return answer_text(r);
    response = swn_http_infer_answer(r, &bytes);
    return response ? queue(r, response, 200, bytes) : answer_error(r);
}

static enum MHD_Result answer_server(struct swn_http_request *r)
{
    static const char *const extensions[] = {"binary_tensor_data", "model_repository", "model_configuration",
                                             "statistics",         "schedule_policy",  "classification"};
    const unsigned count = sizeof extensions / sizeof *extensions;

    r->job.body_bytes = swn_oip_server_metadata(NULL, 0, "swapnet-serve", SWAPNET_VERSION, extensions, count);
    r->job.body = malloc(r->job.body_bytes);
    if (!r->job.body)
        return MHD_NO;
    swn_oip_server_metadata(r->job.body, r->job.body_bytes, "swapnet-serve", SWAPNET_VERSION, extensions, count);
    return answer_text(r);
}

/* ---- bodies ---- */

static int number(const char *text, uint64_t *out)
{
    char *end;

    if (!text)
        return 0;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return *text < '0' || *text > '9' || *end || errno || *out == UINT64_MAX ? -EINVAL : 0;
}

/* Headers that say where the body ends. */
struct framing {
    unsigned lengths, codings;
    uint8_t is_chunked, has_blank; /* has_blank: a name ends with a blank, so others may take it for another one */
};

static enum MHD_Result look_at_header(void *cls, enum MHD_ValueKind kind, const char *key, const char *value)
{
    struct framing *f = cls;
    size_t length = strlen(key);

    (void)kind;
    f->has_blank |= length == 0 || key[length - 1] == ' ' || key[length - 1] == '\t';
    f->lengths += strcasecmp(key, "Content-Length") == 0;
    if (strcasecmp(key, "Transfer-Encoding") == 0) {
        f->codings++;
        f->is_chunked = value && strcasecmp(value, "chunked") == 0;
    }
    return MHD_YES;
}

/* A proxy in front of us that chose another of two ends would take the rest of a body for a request, or the other way
 * round, and libmicrohttpd chooses one. */
static int check_framing(struct swn_http_request *r)
{
    struct framing f = {0};

    MHD_get_connection_values(r->connection, MHD_HEADER_KIND, look_at_header, &f);
    if (f.lengths + f.codings <= 1 && f.is_chunked == f.codings && !f.has_blank)
        return 0;
    r->must_close = 1;
    return swn_oip_fail(&r->job.error, 400, "the end of the body is not clear: use one Content-Length or chunks");
}

static int read_headers(struct swn_http_request *r)
{
    struct MHD_Connection *c = r->connection;
    const char *length = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Content-Length");

    if (check_framing(r))
        return -EINVAL;
    r->length = length || MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Transfer-Encoding") ? UINT64_MAX : 0;
    if (number(length, &r->length)) {
        r->must_close = 1;
        return swn_oip_fail(&r->job.error, 400, "Content-Length is no number");
    }
    if (number(MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Inference-Header-Content-Length"), &r->json_bytes))
        return swn_oip_fail(&r->job.error, 400, "Inference-Header-Content-Length is no number");
    return 0;
}

/* Lists of models and bodies of such requests are in memory that no buffer bounds. */
static int bound_others(struct swn_http_request *r)
{
    size_t most = OTHERS_MOST;

    switch (r->job.kind) {
    case SWN_JOB_INFER:
    case SWN_JOB_LIVE:
    case SWN_JOB_READY:
    case SWN_JOB_MODEL_READY:
        return 0;
    case SWN_JOB_LOAD:
    case SWN_JOB_UNLOAD:
        r->counted_in = &r->http->loads;
        most = LOADS_MOST;
        break;
    default:
        r->counted_in = &r->http->others;
    }
    return atomic_fetch_add(r->counted_in, 1) < most ? 0
                                                     : swn_oip_fail(&r->job.error, 503, "there are too many requests");
}

static int begin_body(struct swn_http_request *r)
{
    if (r->job.kind == SWN_JOB_INFER)
        return swn_http_infer_begin(r);
    if (r->length == 0)
        return 0;
    if (r->length != UINT64_MAX && r->length > SWN_HTTP_SMALL)
        return swn_oip_fail(&r->job.error, 413, "the body is too large");
    r->small = malloc(SWN_HTTP_SMALL);
    return r->small ? 0 : swn_oip_fail(&r->job.error, 503, "out of memory");
}

/* A refused body is read and left aside, unless the client waits for our word, or too much of it is to come. */
static enum MHD_Result refuse(struct swn_http_request *r)
{
    uint64_t most = r->http->options.body_most + LEFT_ASIDE_MOST;

    r->is_refused = 1;
    if (r->length != 0 && (MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, "Expect") ||
                           (r->length != UINT64_MAX && r->length > most)))
        r->must_close = 1;
    return r->must_close ? answer_error(r) : MHD_YES;
}

/* A body must come at the least rate all the time: its end alone would let a client that says a large size hold what it
 * never sends. */
static void body_deadline(struct swn_http_request *r)
{
    struct swn_http *h = r->http;
    uint64_t until = r->began_ns + h->options.header_s * SECOND + transfer_ns(h, r->received), now = swn_now_ns();

    set_deadline(h, r->client, until > now ? until - now : 1);
}

static enum MHD_Result begin(struct swn_http_request *r, const char *url, const char *method)
{
    int rc = read_headers(r);

    r->began_ns = swn_now_ns();
    rc = rc ? rc : swn_http_route(r, url, method, &r->allow);
    rc = rc ? rc : bound_others(r);
    rc = rc ? rc : begin_body(r);
    body_deadline(r);
    return rc ? refuse(r) : MHD_YES;
}

static int add(struct swn_http_request *r, const char *bytes, size_t count)
{
    if (r->job.kind == SWN_JOB_INFER)
        return swn_http_infer_add(r, bytes, count);
    if (!r->small || count > SWN_HTTP_SMALL - r->used)
        return swn_oip_fail(&r->job.error, 413, "the body is too large");
    memcpy(r->small + r->used, bytes, count);
    r->used += count;
    return 0;
}

static enum MHD_Result take(struct swn_http_request *r, const char *bytes, size_t count)
{
    r->received += count;
    hear(r->client);
    body_deadline(r);
    if (r->received > r->http->options.body_most + LEFT_ASIDE_MOST)
        return MHD_NO; /* of an unknown length, and refused long ago */
    if (!r->is_refused && add(r, bytes, count)) {
        r->is_refused = 1;
        swn_slot_give(swn_serving_buffer(r->http->serving), &r->body);
    }
    return MHD_YES;
}

/* The request is whole: to the serving thread, unless it is refused by now. */
static enum MHD_Result end(struct swn_http_request *r)
{
    if (!r->is_refused)
        r->is_refused = (r->job.kind == SWN_JOB_INFER ? swn_http_infer_end(r)
                         : r->small                   ? swn_http_read_small(r)
                                                      : 0) != 0;
    if (r->is_refused)
        return answer_error(r);
    if (r->job.kind == SWN_JOB_SERVER)
        return answer_server(r);
    r->phase = SWN_HTTP_WAITS;
    r->job.done = job_done;
    set_deadline(r->http, r->client, 0);
    MHD_suspend_connection(r->connection);
    swn_serving_post(r->http->serving, &r->job);
    return MHD_YES;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *connection, const char *url, const char *method,
                                  const char *version, const char *upload, size_t *upload_bytes, void **context)
{
    struct swn_http_request *r = *context;

    (void)version;
    if (!r) {
        *context = r = new_request(cls, connection);
        return r ? begin(r, url, method) : MHD_NO;
    }
    if (*upload_bytes) {
        size_t count = *upload_bytes;
        *upload_bytes = 0;
        return take(r, upload, count);
    }
    return r->phase == SWN_HTTP_HAS_ANSWER ? answer(r) : r->phase == SWN_HTTP_READS ? end(r) : MHD_YES;
}

/* Paths are decoded segment by segment (http_routes.c), so that an escaped '/' or 0 is seen. */
static size_t keep_escapes(void *cls, struct MHD_Connection *connection, char *text)
{
    (void)cls;
    (void)connection;
    return strlen(text);
}

/* ---- begin and end ---- */

static void log_message(void *cls, const char *format, va_list args)
{
    const struct swn_http *h = cls;
    char text[512];

    if (!h->options.is_verbose)
        return;
    vsnprintf(text, sizeof text, format, args);
    text[strcspn(text, "\n")] = '\0';
    swn_serve_say("http: %s", text);
}

static int listen_at(const struct addrinfo *a, int *out)
{
    const int on = 1;
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, a->ai_addr, a->ai_addrlen) || listen(fd, SOMAXCONN)) {
        int err = -errno;
        close(fd);
        return err;
    }
    *out = fd;
    return 0;
}

static int open_socket(struct swn_http *h, char why[SWN_ERRMSG])
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    const char *address = h->options.address;
    struct addrinfo *found = NULL;
    int rc = -EADDRNOTAVAIL, err;

    if (h->options.socket >= 0) {
        h->listen_fd = h->options.socket;
        return 0;
    }
    err = getaddrinfo(*address ? address : NULL, h->options.port, &hints, &found);
    if (err)
        return swn_errmsg(why, -EADDRNOTAVAIL, "cannot listen at '%s', port '%s': %s", address, h->options.port,
                          gai_strerror(err));
    for (struct addrinfo *a = found; a && rc; a = a->ai_next)
        rc = listen_at(a, &h->listen_fd);
    freeaddrinfo(found);
    return rc ? swn_errmsg(why, rc, "cannot listen at '%s', port %s: %s", address, h->options.port, strerror(-rc)) : 0;
}

static void find_port(struct swn_http *h)
{
    struct sockaddr_storage at;
    socklen_t length = sizeof at;
    char port[16];

    if (getsockname(h->listen_fd, (struct sockaddr *)&at, &length) == 0 &&
        getnameinfo((struct sockaddr *)&at, length, NULL, 0, port, sizeof port, NI_NUMERICSERV) == 0)
        h->port = (unsigned)strtoul(port, NULL, 10);
}

/* As the options say. The library copies what it needs of the certificate and the key. */
static struct MHD_Daemon *start_daemon(struct swn_http *h)
{
    const struct swn_http_options *o = &h->options;
    struct MHD_OptionItem tls[SWN_HTTP_TLS_OPTIONS];
    unsigned flags = swn_http_tls_options(o->tls, tls);

    return MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG | flags, 0, NULL, NULL, on_request,
        h, MHD_OPTION_EXTERNAL_LOGGER, log_message, h, MHD_OPTION_LISTEN_SOCKET, h->listen_fd,
        MHD_OPTION_THREAD_POOL_SIZE, o->threads, MHD_OPTION_CONNECTION_LIMIT, o->connections,
        MHD_OPTION_PER_IP_CONNECTION_LIMIT, o->connections_per_address, MHD_OPTION_CONNECTION_TIMEOUT, o->idle_s,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, o->header_bytes, MHD_OPTION_NOTIFY_CONNECTION, on_connection, h,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, h, MHD_OPTION_URI_LOG_CALLBACK, on_first_line, h,
        MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, NULL, MHD_OPTION_ARRAY, tls, MHD_OPTION_END);
}

int swn_http_start(struct swn_http **out, const struct swn_http_options *o, struct swn_serving *serving,
                   char why[SWN_ERRMSG])
{
    struct swn_http *h = calloc(1, sizeof *h);
    int rc;

    if (!h)
        return swn_errmsg(why, -ENOMEM, "out of memory");
    h->options = *o;
    h->has_tls = o->tls != NULL;
    h->serving = serving;
    h->listen_fd = -1;
    pthread_mutex_init(&h->lock, NULL);
    rc = open_socket(h, why);
    if (rc) {
        swn_http_stop(h);
        return rc;
    }
    find_port(h);
    errno = 0;
    h->daemon = start_daemon(h);
    rc = errno;
    h->options.tls = NULL; /* it was the caller's */
    if (!h->daemon) {
        swn_http_stop(h);
        /* With plain HTTP it fails for lack of memory, threads or descriptors only. */
        int lacks = rc == ENOMEM || rc == EMFILE || rc == ENFILE;
        return o->tls && !lacks
                   ? swn_errmsg(why, -EINVAL,
                                "HTTPS does not start: %s and %s have to be a certificate and its key, without a "
                                "password, in PEM form",
                                o->tls->certificate_path, o->tls->key_path)
                   : swn_errmsg(why, -EIO, "libmicrohttpd does not start");
    }
    *out = h;
    return 0;
}

unsigned swn_http_port(const struct swn_http *h)
{
    return h->port;
}

void swn_http_quiesce(struct swn_http *h)
{
    int fd = MHD_quiesce_daemon(h->daemon);

    if (fd >= 0)
        close(fd);
    h->listen_fd = -1;
}

size_t swn_http_requests(const struct swn_http *h)
{
    return atomic_load(&h->requests);
}

size_t swn_http_connections(const struct swn_http *h)
{
    return atomic_load(&h->connection_count);
}

void swn_http_stop(struct swn_http *h)
{
    if (!h)
        return;
    if (h->daemon)
        MHD_stop_daemon(h->daemon); /* closes the socket, unless it is quiet */
    else if (h->listen_fd >= 0 && h->listen_fd != h->options.socket)
        close(h->listen_fd);
    pthread_mutex_destroy(&h->lock);
    free(h);
}
