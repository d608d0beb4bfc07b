/* base/text_file.h - a small file that is written as a whole or not at all. */
#ifndef SWN_BASE_TEXT_FILE_H
#define SWN_BASE_TEXT_FILE_H

#include <stddef.h>

/* Writes `text` and a newline. A regular file is replaced by renaming; anything else (a device, a fifo, /dev/stdout) is
 * written to, without waiting for a reader. 0 or -errno. */
int swn_textfile_write(const char *path, const char *text);

/* Replaces a regular file, or makes one, of these bytes. 0 or -errno. */
int swn_textfile_replace(const char *path, const void *bytes, size_t len);

/* Reads a file of at most `most` bytes. *text is malloc'd and ends with a 0 that *len does not count. 0; -EFBIG;
 * another -errno. */
int swn_textfile_read(const char *path, size_t most, char **text, size_t *len);

#endif
