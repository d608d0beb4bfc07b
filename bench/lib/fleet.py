"""Several DNN processes of one variant that run at the same time, all in one memory cgroup."""
import json
import shutil
import socket
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import variants
from child import Ended
from lane import BUILD_TIMEOUT_SECONDS, INPUTS

DAEMON_SECONDS = 10


class _Member:
    """A cgroup as one of several workers in it sees it: not its own to kill or remove."""

    def __init__(self, group):
        self._group = group
        self.limited = group.limited

    def command(self, argv):
        return self._group.command(argv)

    def started(self, pid):
        self._group.started(pid)

    def oom_kills(self):
        return self._group.oom_kills()

    def close(self):
        pass


class Daemon:
    """A swapnetd with one total and one policy, and the directory in which programs find it."""

    def __init__(self, library, total_bytes, policy):
        self.place = tempfile.mkdtemp(prefix="swapnet-bench-")
        (Path(self.place) / "swapnet").mkdir(mode=0o700)
        self.env = {"XDG_RUNTIME_DIR": self.place}
        program = library.parent.parent / "bin" / "swapnetd"
        self._process = subprocess.Popen([program, "--total", str(total_bytes), "--policy", policy],
                                         env={**variants.plain_environment(), **self.env})
        self._socket = str(Path(self.place) / "swapnet" / "swapnetd.sock")
        end = time.monotonic() + DAEMON_SECONDS
        while not Path(self._socket).exists():
            if self._process.poll() is not None or time.monotonic() > end:
                self.close()
                raise SystemExit("bench: swapnetd did not start")
            time.sleep(0.01)

    def budgets(self):
        """Bytes by process id, as they are now."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(DAEMON_SECONDS)
            connection.connect(self._socket)
            connection.sendall(b'{"op": "list"}\n')
            with connection.makefile() as answers:
                found = json.loads(answers.readline())
        return {process["pid"]: process["budget_bytes"] for process in found["processes"]}

    def close(self):
        self._process.terminate()
        self._process.wait()
        shutil.rmtree(self.place)


class Dnn:
    """One worker: its inferences, when they were due, and which were late."""

    def __init__(self, name, model, worker, timeout):
        self.name, self.model, self.worker, self.timeout = name, model, worker, timeout
        self.latencies, self.hashes = [], {}
        self.released = self.missed = self.inferences = 0
        self.read_bytes = 0  # in the inferences that were timed
        self._read_before = 0
        self.ended = None

    def infer(self):
        index = self.inferences % INPUTS
        try:
            answer = self.worker.infer(index, self.timeout)
        except Ended as end:
            self.ended = str(end)
            self.worker.kill()
            return None
        self.inferences += 1
        answer["read"] = answer["read_bytes"] - self._read_before
        self._read_before = answer["read_bytes"]
        self.hashes.setdefault(index, set()).add(answer["hash"])
        return answer

    def without_pause(self, seconds):
        """One inference after the other; their latencies."""
        latencies, end = [], time.monotonic() + seconds
        while not latencies or time.monotonic() < end:
            answer = self.infer()
            if not answer:
                break
            latencies.append(answer["seconds"])
        return latencies

    def every(self, period, seconds):
        """A job is released every `period`, and has to be done before the next one. A job that is
        due while the one before still runs is dropped; both are missed."""
        start = time.monotonic()
        release = start
        while not self.ended and release < start + seconds:
            time.sleep(max(0.0, release - time.monotonic()))
            answer = self.infer()
            if not answer:
                return
            self.latencies.append(answer["seconds"])
            self.read_bytes += answer["read"]
            done = time.monotonic()
            self.released += 1
            self.missed += done > release + period
            release += period
            while release < min(done, start + seconds):
                self.released += 1
                self.missed += 1
                release += period

    def latency(self):
        return statistics.median(self.latencies) if self.latencies else None

    def read_per_pass(self):
        return self.read_bytes / len(self.latencies) if self.latencies else None


class Fleet:
    """All DNNs of a scenario under one variant, each with its weights file. `title` names log and statistics files."""

    def __init__(self, setup, title, variant, names, weights, group, sampler, timeout, cpus, extra_env=None):
        self.title, self.variant, self.group, self.sampler = title, variant, group, sampler
        self.dnns = []
        member = _Member(group)
        sampler.watch(group)
        try:
            for i, (name, model) in enumerate(names):
                worker = variants.start(setup, variant, model, member, f"{title}-{name}",
                                        extra_env=extra_env, cpus=cpus[i], weights=weights[name])
                self.dnns.append(Dnn(name, model, worker, timeout))
            for dnn in self.dnns:
                try:
                    dnn.worker.answer(BUILD_TIMEOUT_SECONDS)
                except Ended as end:
                    dnn.ended = str(end)
        except BaseException:
            self.close()
            raise
        finally:
            sampler.watch(None)

    def together(self, what):
        """what(dnn) for every DNN that is alive, all at once; the results by name."""
        found, failures = {}, []

        def run(dnn):
            try:
                found[dnn.name] = what(dnn)
            except Exception as error:  # of whatever kind: it must not pass for a short result
                failures.append(error)

        threads = [threading.Thread(target=run, args=(dnn,)) for dnn in self.dnns if not dnn.ended]
        self.sampler.watch(self.group)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.sampler.watch(None)
        if failures:
            raise failures[0]
        return found

    def quit(self):
        """Let all end by themselves, which writes their statistics."""
        self.together(lambda dnn: dnn.worker.quit())

    def close(self):
        for dnn in self.dnns:
            dnn.worker.close()
        self.group.close()
