/* torch_link.h - the name by which torch backends and serve backends ask for PyTorch's libraries.
 *
 * A wheel calls its libraries libc10.so and libtorch_cpu.so, Debian and Ubuntu libc10.so.2.14 and so on, and others may
 * call them something else. So a backend is linked against SWN_TORCH_LINK, a library that no file has: swn_torch_link
 * makes one in memory that has nothing but this name, and needs PyTorch's libraries by the paths that this process has
 * them from. It must be there when a backend is loaded. Thread-safe, as the dynamic loader is.
 */
#ifndef SWAPNET_SKELETON_ABI_TORCH_LINK_H
#define SWAPNET_SKELETON_ABI_TORCH_LINK_H

#include <stddef.h>

#define SWN_TORCH_LINK "swapnet-torch" /* also in cmake/torch_backends.cmake and tools/add_torch */

/* `c10`: the path of the libc10 whose PyTorch is meant, as the dynamic loader knows it; NULL: the first. A second call
 * does nothing. 0, or -errno with a text. */
int swn_torch_link(const char *c10, char *why, size_t why_size);

#endif
