/* tools/doctor/facts.h - what `swapnetctl doctor` knows of a machine, and what it says of that.
 *
 * Facts are gathered with the library's own probes, so that what is said here is what the library will find. Findings
 * are a pure function of facts.
 */
#ifndef SWN_TOOLS_DOCTOR_FACTS_H
#define SWN_TOOLS_DOCTOR_FACTS_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include "base/errmsg.h"
#include "base/io.h"
#include "base/system_memory.h"
#include "blocks/memory/fetch_queue.h"

/* Errors are -errno, 0 is good. */
struct doctor_kernel {
    char release[66];
    long page_bytes;
    int pagemap;            /* whether the page map tells the truth */
    int knows_huge;         /* whether it knows a file's huge pages */
    int huge;               /* what making a huge page of a memfd gives */
    int huge_disabled;      /* for this process (PR_SET_THP_DISABLE) */
    char huge_mode[64];     /* what the administrator allows, as "always [madvise] never"; "": not known */
    int pressure;           /* a trigger for memory pressure */
    int process_descriptor; /* what swapnetd watches a program with */
};

struct doctor_store {
    char dir[PATH_MAX];
    int off;                     /* SWAPNET_STORE=off: dir is where spill files go */
    int error;                   /* whether a spill file can be made and written */
    char spill[PATH_MAX];        /* where, if `dir` can only be read; "" otherwise */
    char distrusted[SWN_ERRMSG]; /* why block stores in `dir` are not used; "" */
    int in_memory;
    int direct; /* a direct descriptor could be opened */
    int read;   /* an error of the read, by whichever path */
    enum swn_fetch_path path;
    int ring;          /* what setting up io_uring gives */
    int ring_disabled; /* kernel.io_uring_disabled; -1: no such setting */
    uint64_t free_bytes;
};

struct doctor_memory {
    struct swn_memory now;
    int error;
    uint64_t total, swap_total;
    int overcommit;                   /* vm.overcommit_memory; -1: not known */
    uint64_t space, data, file, open; /* soft limits: RLIMIT_AS, _DATA, _FSIZE, _NOFILE; UINT64_MAX: none */
};

struct doctor_library {
    char path[PATH_MAX];
    int error;
    char why[SWN_ERRMSG];
    char preloaded[4096];  /* LD_PRELOAD and /etc/ld.so.preload, less the library itself: words with spaces between */
    char unreadable[4096]; /* those of them that cannot be preloaded */
    char other[PATH_MAX];  /* a second libswapnet.so among them; "" */
    char backends[SWN_ERRMSG]; /* the PyTorch versions that there is a torch backend for: "1.13 2.13" */
};

struct doctor_python {
    char command[PATH_MAX];
    char why[SWN_ERRMSG]; /* why there is no answer; "" */
    char torch[64];       /* its version, "" without */
    char wanted[32];      /* the torch backend that it needs, "2.13" */
    int has_backend;
    /* A small program that ran under the library. */
    int tried, right;
    char said[SWN_ERRMSG]; /* by the library, or what went wrong */
    char fetch_path[32];
};

struct doctor_facts {
    struct doctor_kernel kernel;
    struct doctor_store store;
    struct doctor_memory memory;
    struct doctor_library library;
    struct doctor_python python;
};

enum doctor_level { DOCTOR_OK, DOCTOR_NOTE, DOCTOR_SLOW, DOCTOR_FAIL };

struct doctor_finding {
    const char *check;
    enum doctor_level level;
    char text[SWN_ERRMSG];
    char advice[SWN_ERRMSG]; /* what to change; "": nothing */
};

#define DOCTOR_FINDINGS 40
struct doctor_report {
    size_t count;
    struct doctor_finding findings[DOCTOR_FINDINGS];
};

const char *doctor_level_name(enum doctor_level level); /* "ok", "note", "slow", "fail" */
void doctor_judge(const struct doctor_facts *facts, struct doctor_report *report);
/* Whether programs can run under swapnet here. */
int doctor_is_usable(const struct doctor_report *report);

/* The probes. `root` is "" outside tests, `io` the table that calls the kernel. */
void doctor_look_at_kernel(struct doctor_kernel *k, const char *root);
void doctor_look_at_store(struct doctor_store *s, const struct swn_io *io, const char *root, char *const *env);
void doctor_look_at_memory(struct doctor_memory *m, const char *root);
/* `wanted`: the library that SWAPNET_LIBRARY names, or NULL. */
void doctor_look_at_library(struct doctor_library *l, const char *root, const char *wanted, const char *preload);
/* Runs the interpreter, without the library and with it, for a minute each at most. */
void doctor_look_at_python(struct doctor_python *p, const struct doctor_library *l);

#endif
