/* skeleton/load/load_internal.h - what the files of the loader share. */
#ifndef SWN_SKELETON_LOAD_LOAD_INTERNAL_H
#define SWN_SKELETON_LOAD_LOAD_INTERNAL_H

#include <signal.h>
#include <stddef.h>

#include "skeleton/engine/engine_internal.h"
#include "blocks/checkpoint/tensor_layout.h"
#include "blocks/store/store.h"

/* The most storages too small to be registered between two large weights. */
#define SWN_LOAD_SMALL_RUN 64
/* Two of the longest ticks of the clock for file times: a read waits for a file that has just been written. */
#define SWN_LOAD_SETTLE_MS 20

/* The range that was last mapped to an extent. It may be gone, or have other bytes by now. */
struct held {
    struct swn_range *range;
    uint32_t id;
};

/* What is known of a copy (see skeleton/load/compressed_read.h). */
struct compressed_use {
    _Atomic unsigned char pays, bad;
};

/* A file that was read from, and its store, if it is a checkpoint that has one. */
struct source {
    struct swn_extent_file file; /* first: what ranges point to */
    struct swn_identity identity;
    struct swn_store *store;   /* NULL: the file is no checkpoint, or has no store; it is read */
    int mapped;                /* the checkpoint itself, in its own file; not found by identity */
    int watched;               /* mapped, and does not fit */
    struct swn_layout *layout; /* of a watched one, set once before any thread uses it; NULL: an unreadable format */
    _Atomic int edges_asked;
    uint32_t index;                  /* of the file in its store */
    uint64_t begins_at;              /* offset of a load's first registered read; 0: none yet */
    char *path;                      /* of the file, when it was found; NULL: mapped */
    _Atomic int building, explained; /* a thread makes the store; a waiting reader has printed that */
    unsigned waiting;                /* waiting readers */
    _Atomic unsigned char *verified; /* per extent: 1 when its plain bytes, not a copy's, were found right */
    /* Of the store's copies, may be NULL: per copy, whether it is read instead of its extent, and whether it never may
     * be; per chunk, 1 when it was found right. */
    struct compressed_use *uses;
    _Atomic unsigned char *chunks_verified;
    struct held *held; /* per extent; guarded by the engine's lock, as what follows */
    uint32_t *learned; /* layers in the order of the last plan, each once */
    size_t learned_count;
    struct source *next;
};

/* The source of an extent file, or NULL: the spill file. */
static inline struct source *swn_source_of(const struct swn_extent_file *file)
{
    return file && file->immutable ? (void *)((char *)(uintptr_t)file - offsetof(struct source, file)) : NULL;
}

/* skeleton/load/build_store.c. Makes the store of s, the file of fd, in a thread that ends with a call of
 * swn_load_built, one store at a time. 0, or why no thread could be started: -ENOMEM, -EAGAIN. The loader's lock held.
 */
int swn_load_build(struct swn_engine *e, struct source *s, int fd);
/* Waits until there is a store of s, or none can be made: 1. 0: a signal that is not in `mask` was handled meanwhile.
 * No lock held; s stays, as a thread waits for it. */
int swn_load_await(struct source *s, const sigset_t *mask);
void swn_load_build_fork_child(void);

/* skeleton/load/load.c, for the builder; no lock held. Whether a file of `bytes` is better registered than read, as it
 * is large beside the budget. */
int swn_load_worth_a_store(struct swn_engine *e, uint64_t bytes);
/* The stores that must not be removed for another one, as allocated names in limits->keep. 0 or -ENOMEM. */
int swn_load_stores_in_use(struct swn_engine *e, struct swn_cache_limits *limits);
/* The store exists, or err and why have the reason; `fd` is the file's. No lock held. */
void swn_load_built(struct swn_engine *e, struct source *s, int fd, struct swn_store *store, int err, const char *why);

/* The extent of its store that has the `len` bytes at `off`, or NULL. */
const struct swn_store_extent *swn_source_extent(const struct source *s, uint64_t off, uint64_t len);

/* The file of `fd` is about to be loaded, and this is its store, of it alone: makes the kernel read the parts that will
 * be read all the same. */
void swn_load_readahead(struct swn_engine *e, int fd, const struct swn_store *s);

/* At exit: writes the order beside the store, unless it is the store's own. */
void swn_load_write_order(struct swn_engine *e, const struct source *s);

#endif
