/* scheduler/daemon/daemon.h - what the files of swapnetd share. */
#ifndef SWN_SCHEDULER_DAEMON_DAEMON_H
#define SWN_SCHEDULER_DAEMON_DAEMON_H

#include <limits.h>
#include <sched.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "scheduler/daemon/lease_book.h"
#include "scheduler/daemon/lease_file.h"
#include "base/system_memory.h"

struct swd_options {
    uint64_t total; /* fixed; 0: `share` of the machine's memory */
    double share;   /* 0 to 1 */
    enum swn_divide_policy policy;
    char socket[PATH_MAX];
    int socket_given;
    gid_t group;    /* its members may connect; (gid_t)-1: only the daemon's user and root */
    cpu_set_t cpus; /* to be divided among the DNNs; empty: leave their affinity alone */
    uint64_t clients, clients_per_user;
    char config[PATH_MAX];
    int config_given;
};

struct swd_client {
    int fd;
    struct ucred peer;    /* as it was when it connected; its number may be another process's by now */
    uint64_t since_ticks; /* of the connection, as swn_process_start counts */
    struct swn_lines in;
    char *out;
    size_t out_have, out_room;
    struct swn_client_lease *party; /* NULL: not a DNN (yet) */
    int64_t since_ms;               /* of the connection */
    int offered;                    /* its lease is to be sent, once `out` is empty */
    int64_t unread_ms;              /* since when it has read nothing of `out`; 0: `out` is empty */
    int failed;                     /* to be closed */
    int ended;                      /* to be closed when all is sent */
    struct swd_client *next;
};

struct swd {
    struct swd_options options;
    struct swn_book book;
    struct swn_follow follow;
    struct swd_client *clients;
    size_t client_count;
    int epoll_fd, listen_fd, signal_fd;
    int pressure_fd; /* swn_pressure_open, or negative */
    int bound;       /* the daemon made the socket file, and removes it */
    int stop;
    int unbalanced; /* something changed, and the book has to be divided anew */
    int drifted;    /* only what processes report of themselves changed */
    int cpus_changed;
    int64_t accept_after_ms;     /* out of descriptors: no accept before then */
    int64_t say_accept_after_ms; /* the shortage was reported: no report before then */
    int64_t next_tick_ms;
    struct swn_lease_total total; /* as on record */
    int64_t save_after_ms;        /* the record could not be written: no attempt before then */
    int said_save, said_total;
    char leases[PATH_MAX], stopped[PATH_MAX]; /* scheduler/protocol/lease_record.h */
};

int64_t swd_now_ms(void);
/* The total that does not follow memory; 0: it does. */
uint64_t swd_fixed_total(const struct swd *d);
/* Drops the total that a user set: the total of the settings counts again at once, or the one that follows memory. */
uint64_t swd_total_auto(struct swd *d);
__attribute__((format(printf, 1, 2))) void swd_say(const char *format, ...);

/* scheduler/daemon/options.c: defaults, file, command line; in that order. 0; 1: help or version was printed; -EINVAL:
 * the reason was printed. */
int swd_options_take(struct swd_options *o, int argc, char **argv);

/* scheduler/daemon/socket.c */
int swd_listen(struct swd *d);
void swd_unlisten(struct swd *d);
/* Notes that the daemon ends on request, so that programs that start now do not wait for the next daemon. To be called
 * before swd_unlisten. */
void swd_note_end(struct swd *d);

/* scheduler/daemon/clients.c */
void swd_accept(struct swd *d);
void swd_readable(struct swd *d, struct swd_client *c);
void swd_flush(struct swd *d, struct swd_client *c);
void swd_send(struct swd_client *c, const char *line, size_t len);
void swd_reap(struct swd *d); /* closes what failed, ended or is late */
int64_t swd_deadline(const struct swd *d);
void swd_offer(void *user, struct swn_client_lease *p);
void swd_watch(struct swd *d, struct swn_client_lease *p);
int swd_is_dead(const struct swn_client_lease *p);        /* as its pidfd says */
void swd_gone(struct swd *d, struct swn_client_lease *p); /* the process is dead */
void swd_check_pids(struct swd *d);                       /* where the kernel has no pidfds */
/* Programs that the process has started and that are not in the book themselves, such as the engines of swapnet-serve:
 * they are within its lease. At most SWD_PROGRAMS; their number. */
#define SWD_PROGRAMS 32
int swd_programs_of(const struct swd *d, pid_t pid, pid_t list[SWD_PROGRAMS]);
/* The memory of the process and of these that belongs to no file. 0 or -errno, as swn_process_own_memory. */
int swd_memory_of(const struct swd *d, pid_t pid, uint64_t *bytes);

/* scheduler/daemon/requests.c: a request of swapnetctl's; the answer goes into c's queue. */
void swd_answer(struct swd *d, struct swd_client *c, const struct swn_wire *m);
void swd_answer_error(struct swd_client *c, const char *text);

/* What the book's `user` points to. */
struct swd_link {
    struct swd *daemon;
    struct swd_client *client; /* NULL: away */
    int pidfd;                 /* -1: none */
    int64_t hello_ms;          /* when it may say hello as if it never had */
};

#endif
