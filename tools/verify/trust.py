"""Whether code of a repository is run: as the server decides it (scheduler/serve/repository.c)."""
import os
import stat


def is_theirs(owner):
    return owner in (0, os.geteuid()) or os.stat("/").st_uid == owner


def who_else_can_write(path, repository):
    """The first of the file and the folders above it that users other than this one and root can write to; or None."""
    repository, at = os.path.realpath(repository), os.path.realpath(os.path.dirname(path))
    file = os.lstat(path)
    if not stat.S_ISREG(file.st_mode) or not is_theirs(file.st_uid) or file.st_mode & 0o022:
        return path
    while True:
        here = os.lstat(at)
        inside = at == repository or at.startswith(repository.rstrip("/") + "/")
        # Above the repository a folder that all can write to is safe where files in it are their owners' (/tmp).
        writable = here.st_mode & 0o022 if inside else here.st_mode & 0o002 and not here.st_mode & stat.S_ISVTX
        if not is_theirs(here.st_uid) or writable:
            return at
        if at == "/":
            return None
        at = os.path.dirname(at)
