"""A worker process as the benchmark sees it: ask, wait with a watchdog, learn how it ended."""
import json
import os
import selectors
import signal
import subprocess
import time
from pathlib import Path

TAIL_BYTES = 2000
QUIET_LOOK_SECONDS = 0.02
# OpenBLAS's threads wait for more work for 0.1 s before they sleep; a thread that computes for longer is not waiting.
QUIET_MOST_SECONDS = 1.0
OUT_OF_MEMORY = "out of memory"


class Ended(Exception):
    """The worker gave no answer; the text says why and fits into a table cell."""


class Worker:
    def __init__(self, argv, group, env, log_path):
        self.group, self.log_path = group, log_path
        self._buffer = b""
        with open(log_path, "wb") as log:
            self._process = subprocess.Popen(
                group.command(argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                env=env, start_new_session=True)
        group.started(self._process.pid)

    @property
    def pid(self):
        """Of the worker itself: everything in front of it execs."""
        return self._process.pid

    def answer(self, timeout):
        """The next JSON line of the worker."""
        deadline = time.monotonic() + timeout
        pipe = self._process.stdout
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                left = deadline - time.monotonic()
                if left <= 0 or not selector.select(left):
                    raise Ended(f"none in {timeout:g} s")
                data = os.read(pipe.fileno(), 65536)
                if not data:
                    raise Ended(self._how_it_ended())
                self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer = json.loads(line)
        if "refused" in answer:
            raise Ended(answer["refused"])
        return answer

    def infer(self, index, timeout):
        try:
            self._process.stdin.write(b"infer %d\n" % index)
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Ended(self._how_it_ended()) from None
        return self.answer(timeout)

    def wait_until_quiet(self):
        """Until no thread of the process uses a processor. Those of math libraries keep spinning when an inference is
        over, on what the next one to be measured wants to compute with."""
        end = time.monotonic() + QUIET_MOST_SECONDS
        used = self._cpu_ns()
        while time.monotonic() < end:
            time.sleep(QUIET_LOOK_SECONDS)
            before, used = used, self._cpu_ns()
            if used - before < QUIET_LOOK_SECONDS * 1e9 / 10:
                return

    def _cpu_ns(self):
        """What all threads have used so far; of one that has ended nothing is known."""
        total = 0
        for task in Path(f"/proc/{self.pid}/task").glob("*/schedstat"):
            try:
                total += int(task.read_text(encoding="ascii").split()[0])
            except OSError:
                pass
        return total

    def quit(self, timeout=30):
        """Let the worker end by itself (its library writes its statistics then)."""
        try:
            self._process.stdin.write(b"quit\n")
            self._process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            return None

    def kill(self):
        if self._process.poll() is None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self._process.wait()

    def close(self):
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            try:
                pipe.close()
            except BrokenPipeError:
                pass
        self.group.close()

    def log_tail(self):
        with open(self.log_path, "rb") as log:
            return log.read()[-TAIL_BYTES:].decode(errors="replace").strip()

    def _how_it_ended(self):
        code = self._process.wait(30)
        if self.group.oom_kills():
            return OUT_OF_MEMORY
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        return f"exit code {code}"
