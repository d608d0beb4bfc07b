/* skeleton/engine/config.h - the settings of one process, read from its environment.
 *
 * A pure function of an environ array: no getenv, no printing, no allocation, no file is touched, so that it may run in
 * a library constructor, in the program's process. Empty variables count as unset; of duplicates the first one counts,
 * as with getenv.
 */
#ifndef SWN_SKELETON_ENGINE_CONFIG_H
#define SWN_SKELETON_ENGINE_CONFIG_H

#include <limits.h>
#include <stdint.h>

#include "scheduler/protocol/label.h"

/* Values of swn_config.fetch: SWAPNET_FETCH=auto|uring|pread|buffered. */
enum swn_config_fetch { SWN_CONFIG_AUTO = 0, SWN_CONFIG_URING = 1, SWN_CONFIG_PREAD = 2, SWN_CONFIG_BUFFERED = 3 };

/* Values of swn_config.daemon: SWAPNET_DAEMON=auto|off|PATH. */
enum swn_config_daemon { SWN_DAEMON_AUTO = 0, SWN_DAEMON_OFF = 1, SWN_DAEMON_PATH = 2 };

/* Values of swn_config.unified: SWAPNET_UNIFIED=auto|off|pageable|registered|managed. */
enum swn_config_unified {
    SWN_CONFIG_UNIFIED_AUTO,
    SWN_CONFIG_UNIFIED_OFF,
    SWN_CONFIG_UNIFIED_PAGEABLE,
    SWN_CONFIG_UNIFIED_REGISTERED,
    SWN_CONFIG_UNIFIED_MANAGED,
};

/* Values of swn_config.device: SWAPNET_DEVICE=cuda|privateuseone. */
enum swn_config_device { SWN_CONFIG_CUDA, SWN_CONFIG_PRIVATEUSEONE };

enum swn_config_stores {
    SWN_STORES_OFF = 1, /* SWAPNET_STORE=off: none; the spill file is in the default directory */
    /* SWAPNET_MANY_MODELS: the program has many models, each in a file of its own, and uses them in any order.
     * Checkpoints that fit get a store as well, memory holds what was used last, and a plan is for one model that does
     * not fit. */
    SWN_MANY_MODELS = 2,
};

/* Bits of swn_config.without: SWAPNET_WITHOUT=PART,PART. */
enum swn_config_part {
    SWN_WITHOUT_PREFETCH = 1, /* reads ahead */
    SWN_WITHOUT_KEPT = 2,     /* weights that stay from pass to pass */
    SWN_WITHOUT_SLICES = 4,   /* operators that take their weight piece by piece */
    SWN_WITHOUT_PLACES = 8,   /* planned addresses for activations */
};

struct swn_config {
    int enabled;           /* 1 only when swn_config_load returned 0 */
    uint64_t budget_bytes; /* SWAPNET_BUDGET; 0: not set, a daemon has to give one, or swn_memory_governor_first */
    int budget_auto;       /* SWAPNET_BUDGET=auto */
    uint64_t memory_bytes; /* SWAPNET_MEMORY, for the whole process; 0: not set */
    int daemon;            /* SWAPNET_DAEMON, enum swn_config_daemon */
    char daemon_path[PATH_MAX];
    double urgency;               /* SWAPNET_URGENCY, 1 unless set */
    char name[SWN_LABEL_NAME];    /* SWAPNET_NAME, or "": the program's own */
    char store_dir[PATH_MAX];     /* SWAPNET_STORE, else swn_default_store_dir */
    unsigned stores;              /* enum swn_config_stores */
    char stats_path[PATH_MAX];    /* SWAPNET_STATS, or "" */
    char trace_path[PATH_MAX];    /* SWAPNET_TRACE, or "" */
    char profile_path[PATH_MAX];  /* SWAPNET_PROFILE, or "" */
    char disk_path[PATH_MAX];     /* SWAPNET_DISK, a device profile, "off", or "": the default place */
    char verify_dir[PATH_MAX];    /* SWAPNET_VERIFY, or ""; also set with SWAPNET=0 */
    int verbose;                  /* SWAPNET_VERBOSE */
    int strict;                   /* SWAPNET_STRICT */
    int fetch;                    /* SWAPNET_FETCH, enum swn_config_fetch */
    int enforce;                  /* SWAPNET_ENFORCE, 1 unless 0: control runs only */
    unsigned without;             /* SWAPNET_WITHOUT, enum swn_config_part: for measurements only */
    int unified;                  /* SWAPNET_UNIFIED, enum swn_config_unified */
    int device;                   /* SWAPNET_DEVICE, enum swn_config_device: another one for tests only */
    uint64_t device_budget_bytes; /* SWAPNET_DEVICE_BUDGET; 0: not set */
    char error[512];              /* one line, set with -EINVAL */
    char warnings[1024];          /* lines ended by '\n', one for each unknown SWAPNET_* */
};

/* Fills *c from `env`, a NULL-terminated array of "NAME=value". Paths are copied as written: relative ones are relative
 * to the working directory at program start, so the caller resolves them before the program can chdir. 0: run. 1:
 * disabled on purpose (SWAPNET=0), print nothing. -EINVAL: c->error says what is wrong, where and what to do; the
 * caller prints that line and stays off. Warnings may be set with 0 and -EINVAL. */
int swn_config_load(struct swn_config *c, char *const *env);

/* The message where there is neither a budget nor a daemon. Static. */
const char *swn_config_no_budget(void);

/* "auto", "uring", "pread", "buffered"; "?" for anything else. Static. */
const char *swn_config_fetch_name(int fetch);
/* "auto", "off", "pageable", "registered", "managed"; "?" for anything else. Static. */
const char *swn_config_unified_name(int unified);

#endif
