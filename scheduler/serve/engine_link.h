/* scheduler/serve/engine_link.h - one engine process: it is started, told what to do, watched, and ended.
 *
 * An engine answers in the order in which it was told, so the link remembers what it has been told and not answered:
 * the first of these is what it is doing, how long it may take, and what it died of. An engine dies with the thread
 * that started it. For one thread, which never waits here: a process that is killed while the kernel holds it ends when
 * the kernel lets it, so its end is looked for again and again. Until then its slots and its memory are its own.
 */
#ifndef SWN_SCHEDULER_SERVE_ENGINE_LINK_H
#define SWN_SCHEDULER_SERVE_ENGINE_LINK_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/errmsg.h"
#include "scheduler/protocol/engine_wire.h"

/* What an engine has been told and has not answered. READY stands for its start. */
struct swn_engine_told {
    enum swn_engine_op op;
    uint64_t request;
    uint32_t model;
};

#define SWN_ENGINE_TOLD 64

struct swn_engine_start {
    const char *program; /* with a '/', or found on $PATH */
    const char *torch;   /* for its --torch; NULL: it finds one */
    const char *preload; /* for LD_PRELOAD; NULL: as it is */
    int is_worker;       /* it is to run models in Python */
    uint64_t budget_bytes;
    unsigned threads; /* 0: as the environment has it */
    int buffer_fd;
    uint64_t buffer_bytes;
};

enum swn_engine_state {
    SWN_ENGINE_IS_DOWN,
    SWN_ENGINE_IS_STARTING, /* until READY */
    SWN_ENGINE_IS_UP,
    SWN_ENGINE_IS_ENDING, /* killed, or its socket is closed: it is told nothing more, and its end is waited for */
};

struct swn_engine_link {
    enum swn_engine_state state;
    pid_t pid;
    int socket;            /* for poll; -1: down */
    int is_ours_to_kill;   /* we sent SIGKILL ourselves, as it was late, broke the protocol, or closed its socket */
    int is_closed;         /* its end of the socket, by itself */
    uint64_t buffer_bytes; /* what tensors must lie within */
    uint64_t since_ns;     /* when the engine turned to told[first] */
    unsigned first, count; /* of told[], a ring */
    struct swn_engine_told told[SWN_ENGINE_TOLD];
    struct swn_engine_packet *in, *out;
    char version[64]; /* PyTorch's */
};

/* 0 or -ENOMEM. */
int swn_engine_link_init(struct swn_engine_link *link);
/* Kills the engine, if there is one, and waits a moment for its end. */
void swn_engine_link_free(struct swn_engine_link *link);

/* Starts the process; it is up when READY has come. 0, or -errno with `why` filled. */
int swn_engine_link_start(struct swn_engine_link *link, const struct swn_engine_start *start, uint64_t now_ns,
                          char why[SWN_ERRMSG]);

/* 0; -EPIPE and others: the engine is as good as dead, and its socket says so soon. */
int swn_engine_link_tell(struct swn_engine_link *link, const struct swn_engine_message *m, uint64_t now_ns);

/* The next answer, checked against what the engine was told. 1; -EAGAIN: none is there; 0: the engine is gone; -EPROTO:
 * it answers what it was not asked, and is to be killed. *m points into the link, until the next call. */
int swn_engine_link_hear(struct swn_engine_link *link, struct swn_engine_message *m, uint64_t now_ns);

/* What it is doing, or NULL. */
const struct swn_engine_told *swn_engine_link_doing(const struct swn_engine_link *link);

/* It is to end. */
void swn_engine_link_kill(struct swn_engine_link *link);
/* The process has ended, and is not reaped. Its socket does not say so where a child of it goes on. */
int swn_engine_link_is_dead(const struct swn_engine_link *link);
/* Its socket has ended, so the process has, or does soon. */
void swn_engine_link_closed(struct swn_engine_link *link);

/* 1: the process has ended, and what is left of its process group is killed; the link is down, and *status is what
 * waitpid(2) says. What the engine was told stays to be looked at until the next start. 0: it has not ended yet. Never
 * waits. */
int swn_engine_link_reap(struct swn_engine_link *link, int *status);
/* The same for the end of the server: kills the engine and waits so long. */
int swn_engine_link_end(struct swn_engine_link *link, unsigned patience_ms);

#endif
