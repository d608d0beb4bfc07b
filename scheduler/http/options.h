/* scheduler/http/options.h - the command line of swapnet-serve. */
#ifndef SWN_SCHEDULER_HTTP_OPTIONS_H
#define SWN_SCHEDULER_HTTP_OPTIONS_H

#include <limits.h>

#include "scheduler/http/http.h"
#include "scheduler/serve/serving.h"

#define SWN_LOADS_MOST 256

struct swn_serve_options {
    struct swn_serving_options serving;
    struct swn_http_options http;
    const char *metrics_port, *metrics_address;                  /* NULL: on the port of all */
    int has_http;                                                /* without TLS */
    const char *https_port, *https_address, *tls_cert, *tls_key; /* port NULL: without HTTPS; address NULL: as HTTP's */
    const char *library; /* libswapnet.so; NULL: beside the program; "none": engines run without it */
    int wants_grpc;      /* --allow-grpc true was said */
    unsigned verbose;
    const char *load[SWN_LOADS_MOST];
};

/* 0; 1: help or version was printed; -EINVAL: said why. *o points into argv and into itself. */
int swn_serve_options_take(struct swn_serve_options *o, int argc, char **argv);

#endif
