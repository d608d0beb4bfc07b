/* tests/unit/support/residency_fixture.h - an arena, a pool, a spill file and their residency, without an engine: a
 * range whose bytes are known in every state, and several ranges in one frame. Mappings and writes fail where a test
 * says so.
 */
#ifndef SWN_TESTS_UNIT_SUPPORT_RESIDENCY_FIXTURE_H
#define SWN_TESTS_UNIT_SUPPORT_RESIDENCY_FIXTURE_H

#include <stddef.h>
#include <stdint.h>

#include "base/io.h"
#include "blocks/memory/publish.h"
#include "blocks/memory/residency.h"

#define MIB ((size_t)1 << 20)
#define PAGES 21
#define LEN (PAGES * SWN_PAGE - 100)
#define SIZE (PAGES * SWN_PAGE)

/* Of calls, counted from 0, those in [from, to) fail with err. */
struct bad_calls {
    int calls, from, to, err;
};

extern struct swn_io io; /* the table of all of them */
extern struct bad_calls bad_write, bad_map;
int fault_mmap(void *ctx, void **addr, size_t len, int prot, int flags, int fd, uint64_t off);

extern char dir[512]; /* of the spill file */
extern struct swn_residency res;
extern struct swn_arena *arena;
extern struct swn_pool *pool;
extern struct swn_extent_file *spill;
extern unsigned char shadow[SIZE]; /* what the range of make() has to hold */
extern size_t unit; /* of the pool: in the smallest the range lies in two chunks, the last of which has padding */

/* For cmocka: chunks of one granule, of four, and of a huge page. */
int residency_begin(void **state);
int residency_begin_wide(void **state);
int residency_begin_huge(void **state);
int residency_end(void **state);

/* Whether this kernel populates mappings when asked to. */
int populates(void);
int state_of(const struct swn_range *r);
unsigned char *bytes_of(const struct swn_range *r);
struct swn_pages scan(const struct swn_range *r);
/* Stores a byte into the range and its shadow. */
void put(struct swn_range *r, size_t at, unsigned char byte);
struct swn_range *new_range(size_t len);

/* --- frames, as the engine has them --- */

struct swn_frame *frame_of(uint64_t chunk);
/* What the range has in the chunk is read into its frame, up to the end of its last granule. */
struct swn_part *fetch_into(struct swn_frame *f, struct swn_range *r);
/* The chunk's frame, or a new one. */
struct swn_frame *frame_for(struct swn_range *r, uint64_t chunk);
/* Frames with the bytes of r, in those of its chunks that are in the mask and have none. */
void fetch(struct swn_range *r, unsigned mask);
/* Maps all frames of r, or its extent again. Returns a range that was written to, or NULL. */
struct swn_range *publish(const struct swn_range *r);
struct swn_range *unpublish(const struct swn_range *r);
/* The pool puts the frame's memory to another use. */
void reuse_frame(struct swn_frame *f);
/* The frames that have nothing of any range any more, and those of r if it is not mapped there. */
void reuse(const struct swn_range *r);
size_t mapped_bytes(const struct swn_range *r);
/* Bytes of r in those of its chunks that are in the mask. */
size_t bytes_in(const struct swn_range *r, unsigned mask);

/* --- one range in every state --- */

enum stand { RESIDENT, RESIDENT_AGAIN, CLEAN, WRITTEN, PUBLISHED, PUBLISHED_WRITTEN, STANDS };

#define FIRST_WRITTEN (3 * SWN_PAGE + 17) /* of stores, in the first chunk and in the last */
#define LAST_WRITTEN (LEN - 1)

/* A range that stands as told, with the chunks in the mask published if it is. */
struct swn_range *make(enum stand stand, unsigned mask);
/* It is in `state`, holds its shadow, and is counted. */
void check(const struct swn_range *r, int state);
/* What a streamed range is to hold instead: it takes them. */
void *new_pages(const struct swn_range *r);

/* --- several ranges in a frame --- */

#define NEIGHBOURS 5

struct neighbour {
    struct swn_range *range;
    size_t len, room; /* room: with some of its bytes in the same chunk, or nothing */
    unsigned char byte;
};
extern struct neighbour near[NEIGHBOURS];

/* Of other lengths, one behind the other from the arena's beginning on: whole granules, and with padding. The one in
 * the middle has gone if `hole`, else stays resident. All others are streamed, and lie in the file as in memory, or, if
 * `apart`, the other way round. */
void make_neighbours(int hole, int apart);
void check_neighbours(void);
/* Their frame, into which all that are streamed are read. */
struct swn_frame *frame_of_neighbours(void);
void free_neighbours(void);

#endif
