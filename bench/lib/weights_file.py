"""What can be done with a weights file without PyTorch."""
import os
import shutil


def drop_page_cache(path):
    """Forget cached pages of path, so that no variant starts with what another one read."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def copy(path, other):
    """The same weights as another file, which is on the disk and shares no page cache."""
    shutil.copyfile(path, other)
    shutil.copyfile(f"{path}.json", f"{other}.json")
    with open(other, "rb") as file:
        os.fsync(file.fileno())


def remove(path):
    """Delete a weights file and its index, as far as they exist."""
    for name in (path, f"{path}.json"):
        if os.path.exists(name):
            os.unlink(name)
