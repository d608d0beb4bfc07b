"""swapnetd and the programs that it serves, for the tests of both."""
import contextlib
import functools
import json
import os
import random
import shutil
import socket
import struct
import subprocess
import tempfile
import time

import harness
from harness import MIB

DAEMON = harness.BUILD / "bin" / "swapnetd"
CTL = harness.BUILD / "bin" / "swapnetctl"
SERVE = harness.program_file("serve")
TORCH = harness.TORCH113


def wait_for(what, seconds=30, why="it did not happen"):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = what()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(why)


class Daemon:
    def __init__(self, place, *args, **options):
        self.place = place
        self.socket = f"{place}/swapnet/swapnetd.sock"
        self.args = args
        self.options = options
        self.start()

    def start(self):
        self.process = subprocess.Popen([DAEMON, *map(str, self.args)], env=self.env(), stderr=subprocess.PIPE,
                                        text=True, **self.options)
        wait_for(self.answers, 30, "swapnetd does not answer")

    def env(self, **extra):
        return harness.clean_env({"XDG_RUNTIME_DIR": self.place} | extra)

    def answers(self):
        try:
            return self.ask({"op": "version"})
        except OSError:
            assert self.process.poll() is None, self.process.stderr.read()
            return None

    def dial(self):
        s = socket.socket(socket.AF_UNIX)
        # settimeout alone makes a queue that is full an error, not a wait.
        s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 5, 0))
        s.connect(self.socket)
        s.settimeout(5)
        return s

    def ask(self, request):
        with self.dial() as s:
            s.sendall(json.dumps(request).encode() + b"\n")
            return json.loads(s.makefile().readline())

    def list(self):
        return {p["pid"]: p for p in self.ask({"op": "list"})["processes"]}

    def ctl(self, *args, **extra):
        return subprocess.run([CTL, *map(str, args)], env=self.env(**extra), capture_output=True, text=True, timeout=60,
                              stdin=subprocess.DEVNULL)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()

    def end(self):
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(10)
        text = self.process.stderr.read()
        self.process.stderr.close()
        return text


@contextlib.contextmanager
def daemon(place, *args, **options):
    d = Daemon(place, *args, **options)
    try:
        yield d
    finally:
        if d.process.poll() is None:
            d.process.kill()
            d.process.wait()


class Dnn:
    """One serve.py under swapnet."""

    def __init__(self, place, layers, *more, enter=None, **extra):
        self.directory = tempfile.mkdtemp(prefix="swapnet-e2e-", dir=os.environ.get("SWAPNET_TEST_DIR", "/var/tmp"))
        self.report = f"{self.directory}/report"
        env = {"LD_PRELOAD": str(harness.LIBRARY), "SWAPNET_STORE": f"{self.directory}/store",
               "XDG_RUNTIME_DIR": place} | extra
        self.process = subprocess.Popen([TORCH.python, SERVE, self.report, str(layers), *more], env=harness.clean_env(env),
                                        stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=enter)
        self.pid = self.process.pid
        self.place = place

    def state(self):
        try:
            with open(self.report) as f:
                return json.load(f)
        except FileNotFoundError:
            assert self.process.poll() is None, self.process.stderr.read()
            return None

    def inferences(self):
        state = self.state()
        return state["inferences"] if state else 0

    def goes_on(self, more=2, seconds=60):
        before = self.inferences()
        wait_for(lambda: self.process.poll() is not None or self.inferences() >= before + more, seconds, "it stands still")
        assert self.process.poll() is None, self.process.stderr.read()

    def ask(self, request):
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(5)
            s.connect(f"{self.place}/swapnet/{self.pid}.sock")
            s.sendall(json.dumps(request).encode() + b"\n")
            return json.loads(s.makefile().readline())

    def stats(self):
        return self.ask({"op": "status"})

    def end(self):
        """Its bits, and what it said on stderr."""
        out, err = self.process.communicate("\n", timeout=60)
        assert self.process.returncode == 0, err
        return self.state()["bits"], err

    def drop(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


@contextlib.contextmanager
def dnns():
    made = []

    def make(*args, **kwargs):
        made.append(Dnn(*args, **kwargs))
        return made[-1]
    try:
        yield make
    finally:
        for d in made:
            d.drop()


@functools.cache
def plain_bits(layers):
    with harness.disk_dir() as directory:
        report = f"{directory}/report"
        subprocess.run([TORCH.python, SERVE, report, str(layers), "0.01"], env=harness.clean_env(), check=True,
                       stdin=subprocess.DEVNULL, timeout=120)
        with open(report) as f:
            return json.load(f)["bits"]


def leased(listing):
    return sum(p["counted_bytes"] for p in listing["processes"])


class Family:
    """One family.py under swapnet."""

    def __init__(self, place, directory, extra):
        self.report = f"{directory}/report"
        env = {"LD_PRELOAD": str(harness.LIBRARY), "SWAPNET_STORE": f"{directory}/store", "XDG_RUNTIME_DIR": place} | extra
        self.process = subprocess.Popen([TORCH.python, harness.program_file("family"), self.report],
                                        env=harness.clean_env(env), stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        self.pid = self.process.pid

    def said(self, suffix=""):
        path = self.report + suffix
        wait_for(lambda: os.path.exists(path) or self.process.poll() is not None)
        assert os.path.exists(path), self.process.stderr.read()
        with open(path) as f:
            return json.load(f)

    def tell(self, line):
        os.write(self.process.stdin.fileno(), line.encode())


@contextlib.contextmanager
def family(place, **extra):
    with harness.disk_dir() as directory:
        made = Family(place, directory, extra)
        try:
            yield made
        finally:
            made.process.kill()
            made.process.communicate()


def play_dnn(path, seed):
    """In a process of its own: registers, confirms what it is told, now and then late, and changes its mind."""
    chance = random.Random(seed)
    s = socket.socket(socket.AF_UNIX)
    s.connect(path)
    hello = {"op": "hello", "version": 1, "name": f"dnn{seed}", "minimum": chance.randrange(1, 4) * MIB,
             "demand": chance.randrange(4, 90) * MIB, "latency": chance.uniform(0.01, 1)}
    s.sendall(json.dumps(hello).encode() + b"\n")
    for heard, line in enumerate(s.makefile()):
        message = json.loads(line)
        if message["op"] != "lease":
            continue
        if chance.random() < 0.1:
            time.sleep(chance.uniform(0, 0.3))
        s.sendall(json.dumps({"op": "ack", "seq": message["seq"]}).encode() + b"\n")
        if heard < 20 and chance.random() < 0.1:  # for ever, and every answer would lead to the next question
            s.sendall(json.dumps({"op": "update", "demand": chance.randrange(4, 90) * MIB}).encode() + b"\n")


def fork_dnn(path, seed):
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            play_dnn(path, seed)
        os._exit(0)
    return pid
