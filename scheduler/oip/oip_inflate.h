/* scheduler/oip/oip_inflate.h - compressed bodies: gzip and deflate (zlib's form, and the bare one that some send).
 *
 * Both directions are streams into memory of a known size, so nobody who sends little can make us hold much.
 */
#ifndef SWN_SCHEDULER_OIP_OIP_INFLATE_H
#define SWN_SCHEDULER_OIP_OIP_INFLATE_H

#include <stddef.h>

enum swn_coding {
    SWN_CODING_IDENTITY,
    SWN_CODING_GZIP,
    SWN_CODING_DEFLATE,
    SWN_CODING_UNKNOWN,
};

/* The value of Content-Encoding. NULL and "" are the identity. */
enum swn_coding swn_coding_named(const char *name);
/* The best that Accept-Encoding allows; IDENTITY where it names none that we have. */
enum swn_coding swn_coding_accepted(const char *accept);
const char *swn_coding_name(enum swn_coding coding);

struct swn_inflate;
/* NULL: no memory, or no coding that compresses. */
struct swn_inflate *swn_inflate_new(enum swn_coding coding);
void swn_inflate_free(struct swn_inflate *z);

/* Takes the next `bytes` of a compressed body and adds what they stand for at to + *used, where `room` bytes are in
 * all. 0; -EMSGSIZE when it does not fit, and nothing beyond `room` has been written; -EBADMSG for what is no such
 * stream, or goes on after its end; -ENOMEM. After a failure there are only failures. */
int swn_inflate_add(struct swn_inflate *z, const void *from, size_t bytes, void *to, size_t room, size_t *used);
/* The body has ended: 0, or -EBADMSG where the stream has not. */
int swn_inflate_end(const struct swn_inflate *z);

/* Compresses parts that follow each other, as one stream. `fast` of zlib's levels. Returns its bytes, or 0 when it has
 * no memory or the stream would not be smaller than `room`: send the parts as they are. */
struct swn_coding_part {
    const void *at;
    size_t bytes;
};
size_t swn_deflate_parts(enum swn_coding coding, const struct swn_coding_part *parts, unsigned count, void *to,
                         size_t room);

#endif
