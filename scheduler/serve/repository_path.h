/* scheduler/serve/repository_path.h - names that clients send and that become names of files. */
#ifndef SWN_SCHEDULER_SERVE_REPOSITORY_PATH_H
#define SWN_SCHEDULER_SERVE_REPOSITORY_PATH_H

#include <stddef.h>
#include <stdint.h>

#define SWN_MODEL_NAME 256 /* bytes of a model's name with its terminator */

/* May this be the name of a model's folder: UTF-8 without control characters, at most 255 bytes, no '/', not beginning
 * with '.'? */
int swn_model_name_is_valid(const char *name, size_t length);

/* A version is the name of a folder: decimal, above 0, without leading zeros. 0 or -EINVAL. */
int swn_model_version_parse(const char *text, size_t length, int64_t *version);

/* Undoes %XX in one segment of a URL's path. Returns its bytes, terminated; -EINVAL for what is no such segment: a '%'
 * without two hexadecimal digits, a '/' or 0 that was hidden, more than `room` bytes. */
int swn_url_segment_decode(const char *segment, size_t length, char *to, size_t room);

#endif
