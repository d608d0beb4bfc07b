"""What can be done with a weights file without PyTorch."""
import os


def drop_page_cache(path):
    """Forget cached pages of path, so that no variant starts with what another one read."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def remove(path):
    """Delete a weights file and its index, as far as they exist."""
    for name in (path, f"{path}.json"):
        if os.path.exists(name):
            os.unlink(name)
