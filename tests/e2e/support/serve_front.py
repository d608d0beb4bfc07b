"""swapnet-serve with a fake engine (tests/tools/fake_engine.c), and requests to it, for the tests of e2e/serve."""
import contextlib
import ctypes
import http.client
import json
import os
import re
import select
import signal
import socket
import struct
import subprocess
import time

import pytest

import harness

SERVE = harness.BUILD / "bin" / "swapnet-serve"
FAKE = harness.BUILD / "tests" / "fake_engine"


def _is_left_out():
    """CMake leaves swapnet-serve out where it has found no libmicrohttpd. A build that should have it and does not fails its tests."""
    cache = harness.BUILD / "CMakeCache.txt"
    return not SERVE.exists() and (not cache.exists() or bool(re.search("^MICROHTTPD_(LIBRARY|HEADERS):.*-NOTFOUND$", cache.read_text(), re.M)))


needs_serve = pytest.mark.skipif(_is_left_out(), reason="swapnet-serve is not built: no libmicrohttpd (scripts/setup installs it)")
PATIENCE_S = harness.HANG_S
# A build with the address sanitizer keeps what is freed, which would look like growth.
QUARANTINE = {"ASAN_OPTIONS": "quarantine_size_mb=1:thread_local_quarantine_size_kb=64"}


def wait_for(condition, what="it"):
    """Until the condition holds; its value."""
    end = time.monotonic() + PATIENCE_S
    while not (value := condition()):
        assert time.monotonic() < end, f"{what} did not happen within {PATIENCE_S} s"
        time.sleep(0.01)
    return value


def repository(path, **models):
    """A repository of models with one version, each with the words of its file (tests/tools/fake_engine.c)."""
    for name, words in models.items():
        (path / name / "1").mkdir(parents=True)
        (path / name / "1" / "model.pt").write_text(words)
    return path


def tensor(values, name="INPUT0", kind="FP32"):
    return {"name": name, "shape": [1, len(values)], "datatype": kind, "data": values}


def body_of(*tensors, **more):
    return json.dumps({"inputs": list(tensors)} | more).encode()


class Front:
    """A running server; `log` is what it wrote to stderr, once it has ended."""

    def __init__(self, repo, *options, memory="200M", env=None, first=None):
        """`first` is called in the process before it is swapnet-serve."""
        self.log = ""
        command = [SERVE, "--model-repository", repo, "--memory", memory, "--http-port", "0", "--engine", FAKE,
                   "--library", "none", *options]
        self.process = subprocess.Popen([str(word) for word in command], stderr=subprocess.PIPE, text=True,
                                        env=harness.clean_env(QUARANTINE | (env or {})), preexec_fn=first)
        self.port = int(self.said(r"listening .*, port (\d+)")[1])

    def said(self, pattern):
        """The first line of its log that matches, waited for."""
        end = time.monotonic() + PATIENCE_S
        while not (found := re.search(pattern, self.log)):
            assert time.monotonic() < end, f"{pattern} was not said:\n{self.log}"
            if select.select([self.process.stderr], [], [], 0.1)[0]:
                text = os.read(self.process.stderr.fileno(), 65536).decode()
                assert text, f"it ended without saying {pattern}:\n{self.log}"
                self.log += text
        return found

    def connection(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)

    def dial(self):
        s = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)
        return s

    def ask(self, method, path, body=None, headers=None, connection=None):
        """(status, headers, bytes)."""
        c = connection or self.connection()
        c.request(method, path, body, headers or {})
        answer = c.getresponse()
        found = answer.status, dict(answer.getheaders()), answer.read()
        if not connection:
            c.close()
        return found

    def get(self, path):
        return self.ask("GET", path)

    def infer(self, model, body, headers=None, connection=None):
        return self.ask("POST", f"/v2/models/{model}/infer", body, headers, connection)

    def is_ready(self):
        return self.get("/v2/health/ready")[0] == 200

    def ready(self):
        wait_for(self.is_ready, "readiness")
        return self

    def metrics(self):
        """{line without its value: value}."""
        lines = self.get("/metrics")[2].decode().splitlines()
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}

    def metric(self, name):
        return self.metrics()[name]

    def engines(self):
        """Process numbers of its engines."""
        with contextlib.suppress(FileNotFoundError), open(f"/proc/{self.process.pid}/task/{self.process.pid}/children",
                                                          encoding="ascii") as f:
            return [int(pid) for pid in f.read().split()]
        return []

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def awake_s(self):
        """How long the serving thread has had or wanted a processor: one that turns in circles always does."""
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/schedstat", encoding="ascii") as f:
            return sum(map(int, f.read().split()[:2])) / 1e9

    def end(self, sig=signal.SIGTERM):
        """Its exit status, after that signal."""
        if self.process.poll() is None:
            self.process.send_signal(sig)
        return self.wait()

    def wait(self):
        """Its exit status, when it ends by itself."""
        self.log += self.process.communicate(timeout=PATIENCE_S)[1]
        return self.process.returncode


@contextlib.contextmanager
def front(repo, *options, **more):
    """Ends with SIGTERM, and has to end well."""
    f = Front(repo, *options, **more)
    try:
        yield f
        assert f.end() == 0, f.log
        assert "Sanitizer" not in f.log, f.log
    finally:
        if f.process.poll() is None:
            f.process.kill()
            f.process.communicate()


@contextlib.contextmanager
def held_by_the_kernel(pid):
    """That process does not end before this does, whoever kills it, as one that waits for a broken disk."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
    seize, detach, trace_exit, wait_all = 0x4206, 17, 0x40, 0x40000000
    if libc.ptrace(seize, pid, None, trace_exit):
        pytest.skip(f"ptrace: {os.strerror(ctypes.get_errno())}")
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, wait_all)
        libc.ptrace(detach, pid, None, None)


def outputs(answer):
    """{name: data} of an answer in JSON."""
    return {one["name"]: one["data"] for one in json.loads(answer[2])["outputs"]}


def binary(values, name="INPUT0", **parameters):
    """(body, headers) of a request with one binary input of floats, and binary outputs."""
    data = struct.pack(f"<{len(values)}f", *values)
    head = json.dumps({"inputs": [{"name": name, "shape": [1, len(values)], "datatype": "FP32",
                                   "parameters": {"binary_data_size": len(data)}}],
                       "parameters": {"binary_data_output": True} | parameters}).encode()
    return head + data, {"Inference-Header-Content-Length": str(len(head))}
