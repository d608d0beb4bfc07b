/* base/text_file.h - a small file that is written as a whole or not at all. */
#ifndef SWN_BASE_TEXT_FILE_H
#define SWN_BASE_TEXT_FILE_H

#include <stddef.h>

/* Writes `text` and a newline, for the user alone to read. A regular file is replaced by renaming; anything else is
 * opened as below. 0 or -errno. */
int swn_textfile_write(const char *path, const char *text);

/* Opens a file that is written bit by bit, empty; a new one is for the user alone to read. The user has named it, in a
 * variable that child processes inherit: another user who may write to its directory must not choose what is
 * overwritten, and nothing may hold up the program. So no link is followed (-ELOOP) but the system's own, such as
 * /dev/stdout, to which is appended; a pipe without a reader is not waited for (-ENXIO); and a file that another
 * process has opened in this way is not touched (-EBUSY). The descriptor, or -errno. */
int swn_textfile_open(const char *path);

/* Replaces a regular file, or makes one, of these bytes. 0; -EEXIST: what has that name is no regular file; another
 * -errno. */
int swn_textfile_replace(const char *path, const void *bytes, size_t len);

/* Reads a file of at most `most` bytes. *text is malloc'd and ends with a 0 that *len does not count. 0; -EFBIG;
 * another -errno. */
int swn_textfile_read(const char *path, size_t most, char **text, size_t *len);

#endif
