/* base/paths.h - where swapnet keeps its files. The library and the programs must look in the same place, so the rule
 * is written down once, here. Thread-safe. */
#ifndef SWN_BASE_PATHS_H
#define SWN_BASE_PATHS_H

#include <stddef.h>

/* The first NAME=value of `env` with a value, else NULL: an empty variable counts as unset. */
const char *swn_env_lookup(char *const *env, const char *name);

/* The store directory when SWAPNET_STORE is not set: $XDG_CACHE_HOME/swapnet, else $HOME/.cache/swapnet. Where that is
 * another user's, as after su or sudo -E, or in a container with a user of its own: /var/tmp/swapnet-UID. 0; -ENOENT:
 * neither variable is an absolute path; -EPERM: /var/tmp/swapnet-UID is another user's, too; -ENAMETOOLONG. */
int swn_default_store_dir(char *const *env, char *out, size_t size);

/* Whether this value of SWAPNET_STORE means that there are no block stores. */
int swn_store_is_off(const char *value);

/* The directory of block stores by SWAPNET_STORE, or else the default. 0; -ENOTSUP: it is off; the errors of the
 * default. */
int swn_store_dir(char *const *env, char *out, size_t size);

/* Whether `dir`, which cannot be written to because of `err`, is a directory to read from only: another user's, or on a
 * file system that is mounted so. */
int swn_dir_is_for_reading(const char *dir, int err);

/* Makes the directory and what is missing above it, mode 0700. 0 (also when it was there) or -errno. */
int swn_make_dirs(const char *dir);

/* Whether only this user and root can put another file in the place of one in `dir`, or another directory in its
 * own: it is no link, it is theirs, only they write to it, and likewise all above it, where links are theirs too and a
 * sticky directory may be everybody's. 0; -ELOOP: a link; -ENOTDIR; -EPERM: others can; another -errno. */
int swn_dir_is_trusted(const char *dir);

/* Makes the directory, an absolute path, and what is missing above it, mode 0700; but nothing below a directory that
 * fails swn_dir_is_trusted, as after su or sudo -E, when HOME is another user's, who could not remove what is made
 * there. 0 (also when it was there) or the errors of swn_dir_is_trusted. */
int swn_make_trusted_dirs(const char *dir);

/* Where this program's parts are installed, libdir of its prefix: `below` there, by where the program's own file is,
 * which is in bin. "": the directory itself. 0 or -errno. */
int swn_installed(const char *below, char *out, size_t size);

/* The directory part of `path`: "." when there is none. 0 or -ENAMETOOLONG. */
int swn_dir_of(const char *path, char *out, size_t size);

#endif
