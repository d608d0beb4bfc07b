/* tools/partition/partition_tool.h - what the files of swapnet-partition share. */
#ifndef SWN_TOOLS_PARTITION_PARTITION_TOOL_H
#define SWN_TOOLS_PARTITION_PARTITION_TOOL_H

#include <stddef.h>
#include <stdint.h>

#include "tools/cli.h"
#include "blocks/store/store.h"

/* Beyond those of tools/cli.h. */
enum part_exit {
    PART_NO_ROOM = 4,   /* no space on the disk, or beyond the cap of the cache; the text says how much is needed */
    PART_REFUSED = 5,   /* the input is malformed, or of an unsupported kind */
    PART_MISMATCH = 6,  /* verify: bytes are wrong; build: the checkpoint changed meanwhile */
    PART_TOO_SMALL = 7, /* plan: the budget is below the minimum, which the text states */
};

int part_inspect(int argc, char **argv);
int part_build(int argc, char **argv);
int part_plan(int argc, char **argv);
int part_table(int argc, char **argv);
int part_verify(int argc, char **argv);
int part_extract(int argc, char **argv);

/* The exit code for an -errno of the library. */
int part_exit_code(int err);
/* Prints why the model cannot be cut into blocks, by the error of swn_partition_model. The exit code. */
int part_cannot_cut(const char *path, int err);

/* Opens a store, or drafts the store that a checkpoint would make. *kind receives a static name of the kind. 0 or
 * -errno; an error was printed. */
int part_open_model(struct swn_store **out, const char **kind, const char *path);

/* Prints on stderr which tensors of the checkpoint are missing in the store, if any. */
void part_say_skipped(const struct swn_store *s, const char *path);

/* Whether both paths lead to the same file; 0 too when one of them does not exist. */
int part_same_file(const char *a, const char *b);

/* part_catch_signals: from now on SIGINT, SIGTERM and SIGHUP are noted instead of obeyed. part_stopped: whether one
 * came. part_stop: dies by that signal, once nothing is left behind. */
void part_catch_signals(void);
int part_stopped(void);
void part_stop(void);

/* Reads a file in pieces of whole blocks, past the page cache. */
struct part_reader {
    struct swn_io_file file; /* fd borrowed, direct_fd its own */
    char *buf;
};
int part_reader_open(struct part_reader *r, int fd);
void part_reader_close(struct part_reader *r);
/* The next piece of [off, off + bytes): *piece points into the reader's memory. The number of bytes, or -errno;
 * -ENODATA: the file is too short. */
ssize_t part_read(struct part_reader *r, uint64_t off, uint64_t bytes, const char **piece);
/* Whether the extent's bytes have their checksum: 0, -EILSEQ or another -errno. */
int part_check_extent(const struct swn_store *s, const struct swn_store_extent *e);
/* The name of a tensor in that extent, for messages. */
const char *part_extent_name(const struct swn_store *s, const struct swn_store_extent *e);

#endif
