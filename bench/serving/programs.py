"""Servers under measurement: each is a program in a cgroup of its own, watched from its exec to its end."""
import contextlib
import http.client
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import pythons

START_SECONDS = 150
END_SECONDS = 60


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def _is_ready(port, path):
    with contextlib.suppress(OSError, http.client.HTTPException):
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        c.request("GET", path)
        return c.getresponse().status == 200
    return False


class Server:
    """A context; `ended` says why it does not answer any more. Its processes are those in the group."""

    def __init__(self, title, group, command, port, ready_path, log, env=None, sampler=None):
        self.title, self.group, self.port, self.ended, self.sampler = title, group, port, None, sampler
        self.log = Path(log)
        self._out = self.log.open("wb")
        if sampler:
            sampler.watch(group)
        self.process = subprocess.Popen(group.command([str(word) for word in command]), stdin=subprocess.DEVNULL,
                                        stdout=self._out, stderr=self._out, env=env or pythons.plain_environment(),
                                        start_new_session=True)
        group.started(self.process.pid)
        end = time.monotonic() + START_SECONDS
        while not _is_ready(port, ready_path):
            if self.process.poll() is not None or group.oom_kills():
                self.ended = f"ended before it was ready ({self.how()})"
                break
            if time.monotonic() > end:
                self.ended = f"not ready within {START_SECONDS} s"
                break
            time.sleep(0.1)
        if sampler:
            sampler.watch(None)

    def how(self):
        kills = self.group.oom_kills()
        return f"{kills} killed for want of memory" if kills else f"exit status {self.process.poll()}"

    def processes(self):
        """{pid: name} of all in the group."""
        found = {}
        with contextlib.suppress(OSError):
            for pid in (self.group.path / "cgroup.procs").read_text().split():
                with contextlib.suppress(OSError):
                    found[int(pid)] = Path(f"/proc/{pid}/comm").read_text().strip()
        return found

    def read_bytes(self):
        """Bytes that its processes have had read from the disk so far."""
        total = 0
        for pid in self.processes():
            with contextlib.suppress(OSError):
                for line in Path(f"/proc/{pid}/io").read_text().splitlines():
                    if line.startswith("read_bytes:"):
                        total += int(line.split()[1])
        return total

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(END_SECONDS)
        self.group.kill()
        self.process.wait()
        self._out.close()

    def last_words(self, lines=12):
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


def swapnet(build, python, repository, memory, group, log, store=None, sampler=None, options=()):
    port = free_port()
    env = pythons.plain_environment() | {"SWAPNET_PYTHON": str(python)}
    if store:
        store.mkdir(parents=True, exist_ok=True)
        env["SWAPNET_STORE"] = str(store)
    return Server("swapnet-serve", group, [build / "bin" / "swapnet-serve", "--model-repository", repository, "--memory",
                                           memory, "--http-port", port, *options], port, "/v2/health/ready", log, env, sampler)
