/* torch_version.h - which backend goes with a PyTorch: those of its major and minor version. */
#ifndef SWAPNET_SKELETON_ABI_TORCH_VERSION_H
#define SWAPNET_SKELETON_ABI_TORCH_VERSION_H

#include <stddef.h>

/* Writes "2.13" from the version.py of a PyTorch package, `file`. 0, or -1 where it is not there or names no version.
 */
int swn_torch_version_read(const char *file, char *version, size_t size);

#endif
