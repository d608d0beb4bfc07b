/* scheduler/json/json_text.h - JSON that is written, or only measured.
 *
 * A text goes on counting when its room is used up, so that `used` is always what all of it takes: with room 0 it
 * measures.
 */
#ifndef SWN_SCHEDULER_JSON_JSON_TEXT_H
#define SWN_SCHEDULER_JSON_JSON_TEXT_H

#include <stddef.h>
#include <stdint.h>

struct swn_json_out {
    char *to;
    size_t room, used;
};

void swn_json_put(struct swn_json_out *text, const void *bytes, size_t count);
void swn_json_puts(struct swn_json_out *text, const char *words); /* as they are */
/* With its quotes and the escapes it needs; bytes that are no UTF-8 become U+FFFD. */
void swn_json_put_string(struct swn_json_out *text, const char *bytes, size_t count);
void swn_json_put_name(struct swn_json_out *text, const char *name); /* likewise, terminated */
void swn_json_put_unsigned(struct swn_json_out *text, uint64_t value);
void swn_json_put_signed(struct swn_json_out *text, int64_t value);

#endif
