"""What the kernel says of memory, for one command alone: files in the place of /proc/meminfo and /proc/pressure/memory, in a
mount namespace of its own; needs root.

    told = pressure.Told(directory, available=400 << 20)
    process = subprocess.Popen([...], preexec_fn=told.enter)
    told.say(available=200 << 20, percent=30)

And memory that somebody really waits for, which the kernel tells whoever asked it to by PSI triggers:

    with pressure.moment(directory):
        ...
"""
import contextlib
import ctypes
import functools
import os
import subprocess
import sys
import tempfile

import cgroup

CLONE_NEWNS, MS_BIND, MS_REC, MS_PRIVATE = 0x20000, 0x1000, 0x4000, 0x40000
_libc = ctypes.CDLL(None, use_errno=True)


def _mount(what, where, flags):
    if _libc.mount(what.encode(), where.encode(), None, ctypes.c_ulong(flags), None):
        raise OSError(ctypes.get_errno(), f"cannot mount {what}")


class Told:
    """percent None: what the kernel itself says of waiting."""

    def __init__(self, directory, available, percent=0):
        self._files = {f"{directory}/meminfo": "/proc/meminfo"}
        if percent is not None:
            self._files[f"{directory}/pressure"] = "/proc/pressure/memory"
        self.say(available, percent)

    def say(self, available, percent=0):
        """Memory that is to be had, in bytes, and the time in which somebody waited for some."""
        texts = (f"MemAvailable: {available >> 10} kB\n",
                 f"some avg10={percent or 0:.2f} avg60=0.00 avg300=0.00 total=0\n")
        for path, text in zip(self._files, texts):
            with open(path, "w") as f:
                f.write(text)

    def enter(self):
        """For subprocess's preexec_fn."""
        if _libc.unshare(CLONE_NEWNS):
            raise OSError(ctypes.get_errno(), "no mount namespace can be made")
        _mount("none", "/", MS_REC | MS_PRIVATE)
        for ours, theirs in self._files.items():
            _mount(ours, theirs, MS_BIND)


@functools.cache
def why_not():
    """Why nothing can be told here, in one line; None when it can."""
    with tempfile.TemporaryDirectory() as directory:
        try:
            subprocess.run(["true"], preexec_fn=Told(directory, 1 << 30).enter, check=True)
        except (OSError, subprocess.SubprocessError) as error:
            return f"another /proc/meminfo cannot be mounted: {error}"
    return None


# ---- that is real ----

# Writing a file in a group that has no room for its pages: each write waits until others are on the disk.
_WAITS = """
import os, sys
waited = lambda: int(open("/proc/pressure/memory").readline().rpartition("=")[2])
until = waited() + int(sys.argv[2])
with open(sys.argv[1], "wb", buffering=0) as f:
    while waited() < until:
        for part in range(96):
            os.pwrite(f.fileno(), bytes(1 << 20), part << 20)
            if waited() >= until:
                break
"""
MOMENT_US = 600_000  # more than a trigger waits for, and not enough for avg10 to exceed what it may be
_MOST_SECONDS = 20


def average():
    """The part of the last ten seconds in which somebody waited for memory, in percent."""
    with open("/proc/pressure/memory") as f:
        return float(f.readline().split("avg10=")[1].split()[0])


@contextlib.contextmanager
def moment(directory):
    """Somebody begins to wait for memory, for about half a second in all. Yields a function: why nobody did, or None."""
    path = os.path.join(directory, "written")
    with cgroup.Group("pressed") as group:
        group.limit(32 << 20)
        process = subprocess.Popen([sys.executable, "-c", _WAITS, path, str(MOMENT_US)], preexec_fn=group.enter)
        try:
            def why_none():
                try:
                    return f"a writer ended with {rc}" if (rc := process.wait(_MOST_SECONDS)) else None
                except subprocess.TimeoutExpired:
                    return "nobody waits for memory that writes more of a file than its group has room for"
            yield why_none
        finally:
            process.kill()
            process.wait()
            os.unlink(path)


@functools.cache
def why_not_real():
    """Why there are no PSI triggers here, or nothing that they could tell of; None when there are."""
    try:
        with open("/proc/pressure/memory", "wb", buffering=0) as f:
            f.write(b"some 200000 2000000\0")
    except OSError as error:
        return f"no PSI triggers: {error}"
    return why_not() or cgroup.why_not()
