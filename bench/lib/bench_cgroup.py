"""A memory cgroup (v1 or v2) around child processes, from exec to exit, with swap off.

Where no cgroup can be made (no root, no memory controller) the same interface measures by /proc
and limits nothing; `limited` tells which one it is."""
import os
import shlex
import signal
import time
from pathlib import Path

V1_ROOT = Path("/sys/fs/cgroup/memory")
V2_ROOT = Path("/sys/fs/cgroup")


def _read_table(path):
    """'key value' lines as a dict; {} once the cgroup or process is gone."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    rows = (line.split() for line in lines)
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}


def _read_int(path):
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0


class _Group:
    """What v1 and v2 share: creating, entering, killing, removing."""
    limited = True

    def __init__(self, name, limit_bytes=None):
        self.path = self.root / f"{name}-{os.getpid()}"
        self.path.mkdir()
        self.limit_bytes = limit_bytes
        try:
            if limit_bytes is not None:
                self._set_limit(limit_bytes)
        except OSError:
            self.path.rmdir()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def command(self, argv):
        """argv, entering this cgroup before its exec so that all of it is charged here."""
        procs = shlex.quote(str(self.path / "cgroup.procs"))
        return ["/bin/sh", "-c", f'echo $$ > {procs} && exec "$@"', "sh", *argv]

    def started(self, pid):
        pass

    def kill(self):
        for pid in (self.path / "cgroup.procs").read_text().split():
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                pass

    def close(self):
        """Kill what is left and remove the cgroup; the kernel needs a moment for both."""
        for _ in range(100):
            try:
                self.kill()
                self.path.rmdir()
                return
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.02)
        raise RuntimeError(f"cannot remove cgroup {self.path}")


class GroupV1(_Group):
    root = V1_ROOT

    def _set_limit(self, limit_bytes):
        (self.path / "memory.limit_in_bytes").write_text(str(limit_bytes))
        (self.path / "memory.swappiness").write_text("0")
        swap = self.path / "memory.memsw.limit_in_bytes"
        if swap.exists():
            swap.write_text(str(limit_bytes))

    def sample(self):
        """Bytes charged now: {'anon', 'shmem', 'kernel', 'file'}; file excludes shmem."""
        stat = _read_table(self.path / "memory.stat")
        shmem = stat.get("shmem", 0)
        return {"anon": stat.get("rss", 0), "shmem": shmem,
                "kernel": _read_int(self.path / "memory.kmem.usage_in_bytes"),
                "file": stat.get("cache", 0) - shmem}

    def usage_peak(self):
        return _read_int(self.path / "memory.max_usage_in_bytes")

    def oom_kills(self):
        return _read_table(self.path / "memory.oom_control").get("oom_kill", 0)


class GroupV2(_Group):
    root = V2_ROOT

    def _set_limit(self, limit_bytes):
        (self.path / "memory.max").write_text(str(limit_bytes))
        swap = self.path / "memory.swap.max"
        if swap.exists():
            swap.write_text("0")

    def sample(self):
        stat = _read_table(self.path / "memory.stat")
        shmem = stat.get("shmem", 0)
        # "kernel" appeared in 5.18; before that its parts are listed one by one.
        parts = ("kernel_stack", "pagetables", "percpu", "sock", "slab")
        kernel = stat.get("kernel", sum(stat.get(part, 0) for part in parts))
        return {"anon": stat.get("anon", 0), "shmem": shmem, "kernel": kernel,
                "file": stat.get("file", 0) - shmem}

    def usage_peak(self):
        return _read_int(self.path / "memory.peak")

    def oom_kills(self):
        return _read_table(self.path / "memory.events").get("oom_kill", 0)


class NoGroup:
    """No limit; memory is read from /proc of the one process started in it."""
    limited = False

    def __init__(self, name, limit_bytes=None):
        self.name, self.limit_bytes, self.pid = name, None, None

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def command(self, argv):
        return list(argv)

    def started(self, pid):
        self.pid = pid

    def sample(self):
        stat = _read_table(Path(f"/proc/{self.pid}/status"))
        return {"anon": stat.get("RssAnon:", 0) << 10, "shmem": stat.get("RssShmem:", 0) << 10,
                "kernel": stat.get("VmPTE:", 0) << 10, "file": 0}

    def usage_peak(self):
        return 0

    def oom_kills(self):
        return 0

    def kill(self):
        pass

    def close(self):
        pass


def _usable(kind):
    try:
        with kind("swapnet-probe", 1 << 30):
            return True
    except OSError:
        return False


def _v2_has_memory():
    try:
        return "memory" in (V2_ROOT / "cgroup.controllers").read_text().split()
    except OSError:
        return False


def find():
    """(class to use, None) or (NoGroup, why there is no limit)."""
    if (V1_ROOT / "memory.usage_in_bytes").exists():
        kind = GroupV1
    elif _v2_has_memory():
        kind = GroupV2
        try:
            (V2_ROOT / "cgroup.subtree_control").write_text("+memory")
        except OSError:
            pass  # it may be on already; the probe below tells
    else:
        return NoGroup, "no cgroup memory controller here"
    if not _usable(kind):
        return NoGroup, "cannot make a memory cgroup (root is needed)"
    return kind, None
