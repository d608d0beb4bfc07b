/* part.h - what the files of swapnet-partition share. Each command gets its own argc/argv, argv[0] being the command's
 * name, and returns the exit code.
 */
#ifndef SWN_PART_H
#define SWN_PART_H

#include <getopt.h>
#include <stddef.h>
#include <stdint.h>

#include "swn_store.h"

enum part_exit {
    PART_OK = 0,
    PART_FAILURE = 1,
    PART_USAGE = 2,
    PART_NO_ROOM = 4,   /* no space on the disk, or beyond the cap of the cache; the text says how much is needed */
    PART_REFUSED = 5,   /* the input is malformed, or of a kind that is not read */
    PART_MISMATCH = 6,  /* verify: bytes are not what they should be; build: the checkpoint changed meanwhile */
    PART_TOO_SMALL = 7, /* plan: the budget is below the minimum, which the text states */
};

int part_inspect(int argc, char **argv);
int part_build(int argc, char **argv);
int part_plan(int argc, char **argv);
int part_verify(int argc, char **argv);
int part_extract(int argc, char **argv);

/* "swapnet-partition: ..." on one line of stderr. */
__attribute__((format(printf, 1, 2))) void part_error(const char *format, ...);
/* Says what is wrong with `argv[optind - 1]`, for the '?' and ':' results of getopt_long with opterr = 0. */
void part_bad_option(char **argv, int result);
/* Prints the help text of a command on stdout; 0, or -ENOENT. */
int part_help(const char *command);
/* The exit code for an -errno of the library. */
int part_exit_code(int err);

/* The argument of -o: 1 for json, 0 for table; else says so and returns -EINVAL. */
int part_wants_json(const char *format);

/* Opens a store, or drafts the one that a checkpoint would make. *kind receives a static name for what it is. An error
 * has been said. 0 or -errno. */
int part_open_model(struct swn_store **out, const char **kind, const char *path);

/* A way through a file in pieces of whole blocks, past the page cache. */
struct part_reader {
    struct swn_fetch_file file; /* fd borrowed, direct_fd its own */
    char *buf;
};
int part_reader_open(struct part_reader *r, int fd);
void part_reader_close(struct part_reader *r);
/* The next piece of [off, off + bytes): *piece points into the reader's memory. The number of bytes, or -errno;
 * -ENODATA: the file ends before. */
ssize_t part_read(struct part_reader *r, uint64_t off, uint64_t bytes, const char **piece);
/* 0, -EILSEQ or another -errno: whether the extent's bytes have their checksum. */
int part_check_extent(const struct swn_store *s, const struct swn_store_extent *e);
/* The name of a tensor of that extent, for messages. */
const char *part_extent_name(const struct swn_store *s, const struct swn_store_extent *e);

#endif
