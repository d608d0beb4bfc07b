"""What the kernel says of memory, for one command alone: files in the place of /proc/meminfo and /proc/pressure/memory, in a
mount namespace of its own; needs root.

    told = pressure.Told(directory, available=400 << 20)
    process = subprocess.Popen([...], preexec_fn=told.enter)
    told.say(available=200 << 20, percent=30)
"""
import ctypes
import functools
import subprocess
import tempfile

CLONE_NEWNS, MS_BIND, MS_REC, MS_PRIVATE = 0x20000, 0x1000, 0x4000, 0x40000
_libc = ctypes.CDLL(None, use_errno=True)


def _mount(what, where, flags):
    if _libc.mount(what.encode(), where.encode(), None, ctypes.c_ulong(flags), None):
        raise OSError(ctypes.get_errno(), f"cannot mount {what}")


class Told:
    def __init__(self, directory, available, percent=0):
        self._files = {f"{directory}/meminfo": "/proc/meminfo", f"{directory}/pressure": "/proc/pressure/memory"}
        self.say(available, percent)

    def say(self, available, percent=0):
        """Memory that is to be had, in bytes, and the time in which somebody waited for some."""
        texts = (f"MemAvailable: {available >> 10} kB\n", f"some avg10={percent:.2f} avg60=0.00 avg300=0.00 total=0\n")
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
