"""swapnetd and the programs that it serves, for the tests of both."""
import contextlib
import functools
import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from pathlib import Path

import harness
from harness import MIB

DAEMON = harness.BUILD / "bin" / "swapnetd"
CTL = harness.BUILD / "bin" / "swapnetctl"
SERVE = harness.program_file("serve")
TORCH = harness.TORCH113


def wait_for(what, seconds=harness.HANG_S, why="it did not happen"):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = what()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(why)


def stop(pid):
    """Stops the process, with all its threads: until the one that takes the signal gets a processor, the others run on."""
    def stands():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended meanwhile
            return all(state.read_text().rpartition(")")[2].split()[0] == "T" for state in Path(f"/proc/{pid}/task").glob("*/stat"))
    os.kill(pid, signal.SIGSTOP)
    wait_for(stands)


def ask(dial, request):
    """The answer of whoever `dial` connects to. It hangs up on a client that has said nothing for a second, which a busy
    machine makes of any: that one has another try."""
    end = time.monotonic() + harness.HANG_S
    while True:
        with dial() as s:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                s.sendall(json.dumps(request).encode() + b"\n")
                if line := s.makefile().readline():
                    return json.loads(line)
        assert time.monotonic() < end, "it hangs up"


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
        wait_for(self.answers, why="swapnetd does not answer")

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
        s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", harness.HANG_S, 0))
        s.connect(self.socket)
        s.settimeout(harness.HANG_S)
        return s

    def ask(self, request):
        return ask(self.dial, request)

    def list(self):
        return {p["pid"]: p for p in self.ask({"op": "list"})["processes"]}

    def knows(self, pid):
        """What it says of that process, when it has said hello."""
        return wait_for(lambda: self.list().get(pid), why=f"process {pid} does not register")

    def ctl(self, *args, **extra):
        return subprocess.run([CTL, *map(str, args)], env=self.env(**harness.patience(args), **extra), capture_output=True, text=True,
                              timeout=harness.HANG_S, stdin=subprocess.DEVNULL)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()

    def end(self):
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(harness.HANG_S)
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

    def goes_on(self, more=2):
        before = self.inferences()
        wait_for(lambda: self.process.poll() is not None or self.inferences() >= before + more,
                 why="it stands still")
        assert self.process.poll() is None, self.process.stderr.read()

    def dial(self):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(harness.HANG_S)
        s.connect(f"{self.place}/swapnet/{self.pid}.sock")
        return s

    def ask(self, request):
        return ask(self.dial, request)

    def stats(self):
        return self.ask({"op": "status"})

    def end(self):
        """Its bits, and what it said on stderr."""
        out, err = self.process.communicate("\n", timeout=harness.HANG_S)
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
        return harness.make(TORCH, "serve", layers, "0.01", where=directory).record["bits"]


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
