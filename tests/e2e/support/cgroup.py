"""Runs a command in a memory cgroup of its own and says what it took. Cgroup v2 or v1; needs root.

    with cgroup.Group("name") as group:
        group.limit(400 << 20)
        usage = group.run([...], env=..., timeout=60)

The command is in the group from its first instruction. `Usage.peak_bytes` is what invariant 11 judges by: the
sampled peak of anonymous, shared and kernel memory, without pages of files, which the kernel takes back as it likes.
"""
import contextlib
import dataclasses
import os
import pathlib
import signal
import subprocess
import tempfile
import threading
import time

SAMPLE_SECONDS = 0.02


@dataclasses.dataclass
class Usage:
    """What a command took, and how it ended."""
    rc: int
    stdout: str
    stderr: str
    seconds: float
    timed_out: bool
    peak_bytes: int          # sampled: anonymous + shmem + kernel
    peak_anon_bytes: int
    peak_shmem_bytes: int
    peak_kernel_bytes: int
    peak_mapped_file_bytes: int
    peak_charged_bytes: int  # the kernel's own high-water mark, page cache included
    oom_kills: int


def _mount_of(kind, option):
    """The mount point of cgroup2, or of the cgroup v1 hierarchy that has `option`; None when there is none."""
    for line in pathlib.Path("/proc/self/mounts").read_text().splitlines():
        _, where, type_, options, *_ = line.split()
        if type_ == kind and (not option or option in options.split(",")):
            return pathlib.Path(where)
    return None


def _own_path(controller):
    """This process's path in the v1 hierarchy of `controller`, or in v2 for ""."""
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == controller or controller and controller in controllers.split(","):
            return path.lstrip("/")
    return None


def _parent_v1():
    mount, path = _mount_of("cgroup", "memory"), _own_path("memory")
    if mount is None or path is None:
        return None
    # In a container the path is the host's, and the mount already begins at it.
    return mount / path if (mount / path).is_dir() else mount


def _parent_v2():
    """The nearest group above us, or our own, that hands the memory controller to its children."""
    mount, path = _mount_of("cgroup2", ""), _own_path("")
    if mount is None or path is None:
        return None
    here = mount / path if (mount / path).is_dir() else mount
    while True:
        control = here / "cgroup.subtree_control"
        if "memory" in (here / "cgroup.controllers").read_text().split():
            # Refused with EBUSY where the group has processes of its own: then the one above is tried.
            with contextlib.suppress(OSError):
                control.write_text("+memory")
            if "memory" in control.read_text().split():
                return here
        if here == mount:
            return None
        here = here.parent


def why_not():
    """Why no memory cgroup can be made here, in one line; None when it can."""
    try:
        with Group("probe") as group:
            group.limit(1 << 30)
        return None
    except OSError as error:
        return f"no memory cgroup can be made here: {error}"


class Group:
    """One child cgroup, removed at the end of its `with`."""

    def __init__(self, name):
        parent = _parent_v2()
        self.v2 = parent is not None
        parent = parent or _parent_v1()
        if parent is None:
            raise OSError("the memory controller is neither in cgroup v2 nor in v1")
        self.path = parent / f"swapnet-{name}-{os.getpid()}-{time.monotonic_ns()}"
        self.path.mkdir()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        """Whatever is left inside was started by our command: it goes, else the directory cannot."""
        for _ in range(100):
            for pid in self._read("cgroup.procs").split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            try:
                self.path.rmdir()
                return
            except OSError:
                time.sleep(0.05)
        raise OSError(f"{self.path} cannot be removed")

    def _read(self, name):
        return (self.path / name).read_text()

    def _write(self, name, value):
        (self.path / name).write_text(str(value))

    def limit(self, limit_bytes):
        """A hard limit, with no swap behind it."""
        if self.v2:
            self._write("memory.max", limit_bytes)
            with contextlib.suppress(FileNotFoundError):  # a kernel without swap accounting
                self._write("memory.swap.max", 0)
            return
        names = ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]  # the second is never the smaller one
        grows = int(self._read(names[0])) < limit_bytes
        for name in reversed(names) if grows else names:
            with contextlib.suppress(FileNotFoundError):
                self._write(name, limit_bytes)

    def enter(self):
        """Moves the calling process in: for subprocess's preexec_fn. "0" means the writer itself."""
        self._write("cgroup.procs", 0)

    def usage(self):
        """(anonymous, shared, kernel, mapped file) bytes now."""
        stat = dict(line.split() for line in self._read("memory.stat").splitlines())
        if self.v2:
            kernel = stat.get("kernel")  # since Linux 5.18; before, the parts it is made of
            parts = ("slab", "kernel_stack", "pagetables", "percpu")
            kernel = int(kernel) if kernel else sum(int(stat.get(part, 0)) for part in parts)
            return int(stat["anon"]), int(stat["shmem"]), kernel, int(stat["file_mapped"])
        kernel = int(self._read("memory.kmem.usage_in_bytes"))
        return int(stat["total_rss"]), int(stat["total_shmem"]), kernel, int(stat["total_mapped_file"])

    def peak_charged_bytes(self):
        """The kernel's own peak, page cache included; 0 on v2 before Linux 5.19."""
        try:
            return int(self._read("memory.peak" if self.v2 else "memory.max_usage_in_bytes"))
        except FileNotFoundError:
            return 0

    def oom_kills(self):
        lines = self._read("memory.events" if self.v2 else "memory.oom_control").splitlines()
        return int(dict(line.split() for line in lines).get("oom_kill", 0))

    def run(self, command, env=None, cwd=None, timeout=120):
        """Runs `command` inside and returns its Usage. Killed with all its children after `timeout` seconds."""
        start = time.monotonic()
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = subprocess.Popen([str(c) for c in command], env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=out,
                                       stderr=err, start_new_session=True, preexec_fn=self.enter)
            with _Sampler(self) as sampler:
                timed_out = _wait(process, timeout)
            texts = [_text(out), _text(err)]
        return Usage(process.returncode, *texts, time.monotonic() - start, timed_out, *sampler.peaks(),
                     self.peak_charged_bytes(), self.oom_kills())


def _wait(process, timeout):
    timed_out = False
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired:
        timed_out = True
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return timed_out


def _text(stream):
    stream.seek(0)
    return stream.read().decode(errors="replace")


class _Sampler:
    """Reads a group's usage in a thread for as long as its `with` lasts."""

    def __init__(self, group):
        self._group = group
        self._stop = threading.Event()
        self._peaks = [0, 0, 0, 0, 0]
        self._thread = threading.Thread(target=self._work)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *unused):
        self._stop.set()
        self._thread.join()

    def _work(self):
        while True:
            anon, shmem, kernel, mapped = self._group.usage()
            now = (anon + shmem + kernel, anon, shmem, kernel, mapped)
            self._peaks = [max(pair) for pair in zip(self._peaks, now)]
            if self._stop.wait(SAMPLE_SECONDS):
                return

    def peaks(self):
        return self._peaks
