/* backend_file.h - which file is the torch backend, or the serve backend, of a PyTorch, and where it is looked for.
 *
 * A file is named by the PyTorch's version and by the kind of its C++ strings: aten-2.13.so, aten-2.4-precxx11.so. It
 * lies beside swapnet's own libraries, or else in a directory of the user's, into which `swapnetctl add-torch` builds
 * it. Thread-safe.
 */
#ifndef SWAPNET_SKELETON_ABI_BACKEND_FILE_H
#define SWAPNET_SKELETON_ABI_BACKEND_FILE_H

#include <stddef.h>

/* Whether a PyTorch has the C++ strings of before C++11, as wheels have before 2.7; `library` is a handle of its
 * libc10, or of a library that needs it. */
int swn_backend_has_old_strings(void *library);

/* The name of the backend of this kind ("aten" or "serve") for PyTorch `version` ("2.13"). 0 or -ENAMETOOLONG. */
int swn_backend_name(const char *kind, const char *version, int has_old_strings, char *out, size_t size);

/* The user's directory for backends that were built for this machine and with this build of swapnet:
 * $XDG_DATA_HOME/swapnet/backends/x86_64/0.2.0-0123456789ab, else in $HOME/.local/share. A backend of another build
 * is not found, as the interface may differ though SWN_ATEN_ABI is the same. 0; -ENOENT: neither variable is an
 * absolute path; -ENAMETOOLONG. */
int swn_backend_user_dir(char *const *env, char *out, size_t size);

/* Whether code is loaded from `dir`: nobody but this user, and root, can put a file there or has had a hand in its
 * being there. It is no link and this user's own, only this user writes to it, and no other user can replace what is
 * above it. 0; -ENOENT; -EPERM: it is not this user's alone, or this process has privileges that its user has not;
 * another -errno. */
int swn_backend_dir_is_private(const char *dir);

/* The file `name` in `shipped`, or else in the user's directory. 0; -ENOENT: in neither; another -errno: it is in the
 * user's, which is not private, or is itself a link or not this user's alone. `why`: what is wrong, and what to do. */
int swn_backend_find(const char *shipped, char *const *env, const char *name, char *path, size_t path_size, char *why,
                     size_t why_size);

#endif
