"""What the kernel says of memory, for one command alone: files in the place of /proc/meminfo and /proc/pressure/memory, in a
mount namespace of its own; needs root.

    told = pressure.Told(directory, available=400 << 20)
    process = subprocess.Popen([...], preexec_fn=told.enter)
    told.say(available=200 << 20, percent=30)

And memory that a process really waits for, which the kernel reports through PSI triggers:

    pressure.falls_in_a_moment(directory, lambda: budget() < 86 << 20)
"""
import ctypes
import functools
import os
import select
import subprocess
import sys
import tempfile
import time

import pytest

import cgroup

CLONE_NEWNS, MS_BIND, MS_REC, MS_PRIVATE = 0x20000, 0x1000, 0x4000, 0x40000
_libc = ctypes.CDLL(None, use_errno=True)


def _mount(what, where, flags):
    if _libc.mount(what.encode(), where.encode(), None, ctypes.c_ulong(flags), None):
        raise OSError(ctypes.get_errno(), f"cannot mount {what}")


class Told:
    """percent None: what the kernel itself says of waiting."""

    def __init__(self, directory, available, percent=0):
        self._memory, self._waiting = f"{directory}/meminfo", None if percent is None else f"{directory}/pressure"
        self.say(available, percent)

    def say(self, available, percent=0):
        """Available memory, in bytes, and the time in which a process waited for some."""
        with open(self._memory, "w") as f:
            f.write(f"MemAvailable: {available >> 10} kB\n")
        if self._waiting:
            with open(self._waiting, "w") as f:
                f.write(f"some avg10={percent:.2f} avg60=0.00 avg300=0.00 total=0\n")

    def enter(self):
        """For subprocess's preexec_fn."""
        if _libc.unshare(CLONE_NEWNS):
            raise OSError(ctypes.get_errno(), "no mount namespace can be made")
        _mount("none", "/", MS_REC | MS_PRIVATE)
        _mount(self._memory, "/proc/meminfo", MS_BIND)
        if self._waiting:
            _mount(self._waiting, "/proc/pressure/memory", MS_BIND)


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

_PRESSURE = "/proc/pressure/memory"
_TRIGGER = b"some 200000 2000000\0"
_MOST_AVERAGE = 10  # percent; from there on the average alone would tell
# Writing a file in a group that has no room for its pages: each write waits until others are on the disk. A seventh of
# the time or less, which a trigger tells of within seconds, before the average of ten is that high.
_WAITS = """
import itertools, os, sys, time
waited = lambda: int(open("/proc/pressure/memory").readline().rpartition("=")[2])
until = waited() + 100_000
with open(sys.argv[1], "wb", buffering=0) as f:
    for part in itertools.count():
        os.pwrite(f.fileno(), bytes(1 << 20), part % 96 << 20)
        if waited() >= until:
            time.sleep(0.55)
            until = waited() + 100_000
"""


def _average():
    with open(_PRESSURE) as f:
        return float(f.readline().split("avg10=")[1].split()[0])


def no_triggers():
    """Why the kernel has no PSI triggers for us; None when it has."""
    try:
        with open(_PRESSURE, "wb", buffering=0) as f:
            f.write(_TRIGGER)
    except OSError as error:
        return f"no PSI triggers (they take root, and psi=1 where the kernel begins without): {error}"
    return None


def why_not_real():
    """Why there are no PSI triggers here, or nothing that they could tell of; None when there are."""
    if why := no_triggers() or why_not() or cgroup.why_not():
        return why
    end = time.monotonic() + 60
    while _average() >= 1:
        if time.monotonic() > end:
            return "others wait for memory all the time"
        time.sleep(0.5)
    return None


def falls_in_a_moment(directory, fallen):
    """fallen() comes true once a process has waited for memory for a moment, too short for the average to tell. Skips
    where that cannot be brought about."""
    highest, told = 0, None
    with cgroup.Group("pressed") as group, open(_PRESSURE, "wb", buffering=0) as trigger:
        trigger.write(_TRIGGER)
        poll = select.poll()
        poll.register(trigger, select.POLLPRI)
        group.limit(32 << 20)
        process = subprocess.Popen([sys.executable, "-c", _WAITS, os.path.join(directory, "written")],
                                   preexec_fn=group.enter)
        try:
            end = time.monotonic() + 20
            while not fallen():
                if not told and poll.poll(20):
                    told = time.monotonic()
                    process.kill()
                highest = max(highest, _average())
                assert not told or time.monotonic() < told + 8, "the kernel told of it, and nothing fell"
                if not told and time.monotonic() > end:
                    pytest.skip("nobody waits for memory who writes more of a file than its group has room for")
        finally:
            process.kill()
            process.wait()
    if highest >= _MOST_AVERAGE:
        pytest.skip(f"others wait for memory here, too, up to {highest} %: it may be the average that told")
