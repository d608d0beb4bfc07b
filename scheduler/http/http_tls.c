/* scheduler/http/http_tls.c - TLS of connections: libmicrohttpd has GnuTLS do it.
 *
 * GnuTLS collects a message of TLS's own, of up to 16 MiB, before it says that it wants none. So what a client sends is
 * counted, and one that sends much of which no HTTP comes out loses its connection.
 */
#define _GNU_SOURCE
#include "scheduler/http/http_internal.h"

#ifdef SWAPNET_TLS
#include <errno.h>
#include <gnutls/gnutls.h>
#include <poll.h>
#include <sys/socket.h>

/* What GnuTLS takes for safe, and no version before 1.2. */
#define PRIORITIES "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:%SERVER_PRECEDENCE"
/* Of a handshake, which has a few thousand bytes; and of headers beside the limit of headers, as records have some
 * bytes more. */
#define BESIDE_MOST ((size_t)32 << 10)

int swn_http_has_tls(void)
{
    return MHD_is_feature_supported(MHD_FEATURE_TLS) == MHD_YES;
}

/* Both are called by GnuTLS. */
static ssize_t receive(gnutls_transport_ptr_t from, void *to, size_t bytes)
{
    struct swn_http_connection *c = from;
    ssize_t n = recv(c->fd, to, bytes, 0);

    if (n <= 0)
        return n;
    c->unheard += (size_t)n;
    if (c->unheard <= c->unheard_most)
        return n;
    errno = ECONNABORTED;
    return -1;
}

static int wait_to_receive(gnutls_transport_ptr_t from, unsigned ms)
{
    struct pollfd waits = {.fd = ((struct swn_http_connection *)from)->fd, .events = POLLIN};

    return poll(&waits, 1, ms == GNUTLS_INDEFINITE_TIMEOUT ? -1 : (int)ms);
}

void swn_http_tls_begin(struct swn_http_connection *c, struct MHD_Connection *connection, size_t header_bytes)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    gnutls_session_t session = info ? info->tls_session : NULL;

    if (!session)
        return;
    c->unheard_most = BESIDE_MOST + 2 * header_bytes;
    gnutls_transport_set_ptr2(session, c, (gnutls_transport_ptr_t)(intptr_t)c->fd);
    gnutls_transport_set_pull_function(session, receive);
    gnutls_transport_set_pull_timeout_function(session, wait_to_receive);
}

unsigned swn_http_tls_options(const struct swn_tls_files *files, struct MHD_OptionItem to[SWN_HTTP_TLS_OPTIONS])
{
    unsigned n = 0;

    if (files) {
        to[n++] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_CERT, 0, files->certificate};
        to[n++] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_KEY, 0, files->key};
        to[n++] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)(uintptr_t)PRIORITIES};
    }
    to[n] = (struct MHD_OptionItem){MHD_OPTION_END, 0, NULL};
    return files ? MHD_USE_TLS : 0;
}
#else
int swn_http_has_tls(void)
{
    return 0;
}

void swn_http_tls_begin(struct swn_http_connection *c, struct MHD_Connection *connection, size_t header_bytes)
{
    (void)c;
    (void)connection;
    (void)header_bytes;
}

unsigned swn_http_tls_options(const struct swn_tls_files *files, struct MHD_OptionItem to[SWN_HTTP_TLS_OPTIONS])
{
    (void)files;
    to[0] = (struct MHD_OptionItem){MHD_OPTION_END, 0, NULL};
    return 0;
}
#endif
