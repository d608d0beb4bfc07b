/* scheduler/serve/slots.h - the buffer, which swapnet-serve shares with its engines, and the slots in it.
 *
 * The buffer is a memory file of a fixed size. Bodies of requests, inputs and outputs lie in slots of it, so that one
 * number bounds them all. What is said of slots lies outside of the buffer: an engine can spoil bytes, and no list.
 * Requests wait in it, and their number is the clients' choice: so that answers find room all the same, all requests
 * together leave a part of it.
 * Thread-safe; a slot belongs to one thread at a time.
 */
#ifndef SWN_SCHEDULER_SERVE_SLOTS_H
#define SWN_SCHEDULER_SERVE_SLOTS_H

#include <stddef.h>
#include <stdint.h>

#define SWN_SLOT_ALIGN ((uint64_t)64) /* of each slot's offset */

struct swn_buffer;

struct swn_slot_span;

/* The caller's. Zero-initialised it is none. */
struct swn_slot {
    uint64_t offset, bytes; /* at least what was asked for */
    struct swn_slot_span *span;
};

struct swn_buffer_use {
    uint64_t bytes, used_bytes, peak_bytes;
    uint64_t refused; /* takes and grows for which there was no room */
    unsigned slots;
};

/* Makes the memory file, sealed so that its size never changes, and maps it. 0 or -errno. */
int swn_buffer_open(struct swn_buffer **out, uint64_t bytes);
void swn_buffer_close(struct swn_buffer *b);
int swn_buffer_fd(const struct swn_buffer *b); /* close-on-exec */
void *swn_buffer_at(const struct swn_buffer *b, uint64_t offset);
void swn_buffer_use(struct swn_buffer *b, struct swn_buffer_use *use);

/* Room for `bytes`, which may be 0. 0; -ENOSPC: there is none now; -EFBIG: there never is; -ENOMEM. The bytes are what
 * some earlier slot left there. */
int swn_slot_take(struct swn_buffer *b, uint64_t bytes, struct swn_slot *out);
/* The same for what a request sends: also -ENOSPC where there is room which is kept for answers. */
int swn_slot_take_for_request(struct swn_buffer *b, uint64_t bytes, struct swn_slot *out);
/* So much is kept for answers, beside all requests but one: that one may be as large as the buffer. */
void swn_buffer_keep(struct swn_buffer *b, uint64_t bytes);
/* Makes it hold `bytes`; its bytes stay, and may move to another offset. Errors as above: then nothing changes. */
int swn_slot_resize(struct swn_buffer *b, struct swn_slot *s, uint64_t bytes);
/* It is none from then on, and may be none already. */
void swn_slot_give(struct swn_buffer *b, struct swn_slot *s);

#endif
