/* scheduler/config/pbtxt.h - the words of protobuf's text form.
 *
 * Functions that read a value take the token that is next; those that return an int return 0, or -EINVAL with p->why
 * filled by the line and column of the token that is not as it should be.
 */
#ifndef SWN_SCHEDULER_CONFIG_PBTXT_H
#define SWN_SCHEDULER_CONFIG_PBTXT_H

#include <stddef.h>
#include <stdint.h>

#include "base/errmsg.h"

#define SWN_PBTXT_DEPTH 16

struct swn_pbtxt {
    const char *begin, *at, *end;
    const char *token; /* where the last one began */
    unsigned depth;    /* messages that are open */
    char *ignored;     /* SWN_ERRMSG bytes: names that had no effect */
    char *why;         /* SWN_ERRMSG bytes */
};

void swn_pbtxt_init(struct swn_pbtxt *p, const char *text, size_t bytes, char ignored[SWN_ERRMSG],
                    char why[SWN_ERRMSG]);

/* Says what is wrong with the last token. */
__attribute__((format(printf, 2, 3))) int swn_pbtxt_fail(struct swn_pbtxt *p, const char *format, ...);

int swn_pbtxt_is_at_end(struct swn_pbtxt *p);
/* Takes the next token if it is this character. */
int swn_pbtxt_take(struct swn_pbtxt *p, char c);
/* A message begins, by '{' or '<'; *close is what ends it. It counts as open until swn_pbtxt_close. */
int swn_pbtxt_open(struct swn_pbtxt *p, char *close);
void swn_pbtxt_close(struct swn_pbtxt *p);

int swn_pbtxt_name(struct swn_pbtxt *p, char *to, size_t room);
int swn_pbtxt_text(struct swn_pbtxt *p, char *to, size_t room); /* UTF-8 without zeros */
int swn_pbtxt_flag(struct swn_pbtxt *p, uint8_t *flag);
int swn_pbtxt_unsigned(struct swn_pbtxt *p, uint64_t most, uint64_t *value);
int swn_pbtxt_signed(struct swn_pbtxt *p, int64_t *value);
int swn_pbtxt_real(struct swn_pbtxt *p, double *value); /* finite */

/* Any value, list or message. */
int swn_pbtxt_skip(struct swn_pbtxt *p, int has_colon);

#endif
