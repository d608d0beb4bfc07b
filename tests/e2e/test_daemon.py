"""swapnetd with real processes: one budget for several, a daemon that dies, clients that mean no good."""
import contextlib
import functools
import json
import os
import random
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import threading
import time

import pytest

import harness
from harness import MIB

DAEMON = harness.BUILD / "bin" / "swapnetd"
CTL = harness.BUILD / "bin" / "swapnetctl"
SERVE = harness.PROGRAMS / "serve.py"
TORCH = harness.TORCH113
needs_torch = pytest.mark.usefixtures("torch113")  # which fails where there is none


@pytest.fixture
def place():
    """A session's runtime directory, short enough for sockets."""
    path = tempfile.mkdtemp(prefix="swnd-", dir="/tmp")
    os.mkdir(f"{path}/swapnet", 0o700)
    yield path
    shutil.rmtree(path)


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
        wait_for(self.answers, 10, "swapnetd does not answer")

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
        s.settimeout(5)
        s.connect(self.socket)
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

    def __init__(self, place, layers, **extra):
        self.directory = tempfile.mkdtemp(prefix="swapnet-e2e-", dir=os.environ.get("SWAPNET_TEST_DIR", "/var/tmp"))
        self.report = f"{self.directory}/report"
        env = {"LD_PRELOAD": str(harness.LIBRARY), "SWAPNET_STORE": f"{self.directory}/store",
               "XDG_RUNTIME_DIR": place} | extra
        self.process = subprocess.Popen([TORCH.python, SERVE, self.report, str(layers)], env=harness.clean_env(env),
                                        stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
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


# ---- several processes under one budget ----

@needs_torch
def test_one_budget_for_three(place):
    total = 160 * MIB
    over, stop = [], threading.Event()
    with daemon(place, "--total", "160M") as d, dnns() as make:
        def watch():
            while not stop.is_set():
                listing = d.ask({"op": "list"})
                if leased(listing) > total or listing["leased_bytes"] != leased(listing):
                    over.append(listing)
                time.sleep(0.005)
        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            first = make(place, 24, SWAPNET_URGENCY="2")  # 96 MiB
            first.goes_on()
            wait_for(lambda: d.list()[first.pid]["budget_bytes"] >= 100 * MIB, why="alone, it gets what it can use")
            second, third = make(place, 24), make(place, 16)
            for dnn in first, second, third:
                dnn.goes_on(8)
            wait_for(lambda: all(p["state"] == "running" and p["budget_bytes"] for p in d.list().values()))
            leases = d.list()
            assert leases[first.pid]["urgency"] == 2 and leases[second.pid]["urgency"] == 1
            for dnn in first, second, third:
                now = dnn.stats()
                assert now["budget_bytes"] <= total and now["resident_bytes"] <= now["budget_bytes"], now
            before = leases[first.pid]["budget_bytes"]
            os.kill(second.pid, signal.SIGKILL)
            wait_for(lambda: second.pid not in d.list() and d.list()[first.pid]["budget_bytes"] > before,
                     why="what the dead one had is given to others")
            first.goes_on(8)
            assert first.end()[0] == plain_bits(24)
            assert third.end()[0] == plain_bits(16)
            wait_for(lambda: not d.list())
        finally:
            stop.set()
            watcher.join()
    assert not over, over[0]


@needs_torch
def test_set_total_and_cap(place):
    with daemon(place, "--total", "200M") as d, dnns() as make:
        dnn = make(place, 24, SWAPNET_BUDGET="60M")
        dnn.goes_on(4)
        assert d.list()[dnn.pid]["budget_bytes"] <= 60 * MIB and dnn.stats()["budget_bytes"] <= 60 * MIB  # user's own limit
        free = make(place, 24)
        free.goes_on(4)
        # Refused as a whole, and says what would do; then done as a whole.
        result = d.ctl("set", free.pid, "budget=900M", "urgency=3")
        assert result.returncode == 1 and "leave" in result.stderr and d.list()[free.pid]["urgency"] == 1
        result = d.ctl("set", free.pid, "budget=40M", "urgency=3")
        assert result.returncode == 0, result
        wait_for(lambda: free.stats()["budget_bytes"] == 40 * MIB and free.stats()["state"] == "running")
        assert d.list()[free.pid]["urgency"] == 3
        assert d.ctl("set", free.pid, "budget=auto").returncode == 0
        wait_for(lambda: free.stats()["budget_bytes"] > 60 * MIB)
        assert d.ctl("total", "64M").returncode == 0
        wait_for(lambda: leased(d.ask({"op": "list"})) <= 64 * MIB)
        for each in dnn, free:
            assert each.stats()["resident_bytes"] <= each.stats()["budget_bytes"]
            each.goes_on(2)
        document = json.loads(d.ctl("list", "-o", "json").stdout)
        assert document["total_bytes"] == 64 * MIB and document["policy"] == "eq1"
        assert "swapnetd: " in d.ctl("top").stdout and d.ctl("top", "-n", "2", "-d", "0.1").stdout.count("PID") == 2
        assert d.ctl("list", "-o", "csv").stdout.count("\n") >= 3
        assert d.ctl("drain").returncode == 0
        assert dnn.end()[0] == free.end()[0] == plain_bits(24)
        assert d.process.wait(20) == 0  # drained: those it served have ended


@needs_torch
def test_newcomer_without_its_daemon(place):
    """HOLES rule 12: its minimum, until the configured daemon answers."""
    with dnns() as make:
        path = f"{place}/swapnet/swapnetd.sock"
        dnn = make(place, 16, SWAPNET_DAEMON=path, SWAPNET_BUDGET="60M")
        dnn.goes_on(2)
        now = dnn.stats()
        assert now["budget_bytes"] == 8 * MIB and now["resident_bytes"] <= 8 * MIB, now
        with daemon(place, "--total", "200M") as d:
            wait_for(lambda: dnn.stats()["budget_bytes"] > 40 * MIB, 40)
            assert dnn.pid in d.list()
            bits, err = dnn.end()
        assert bits == plain_bits(16)
        assert "no swapnetd answers" in err and err.count("swapnet:") == 1


@needs_torch
def test_auto_without_a_daemon(place):
    with dnns() as make:
        dnn = make(place, 16, SWAPNET_BUDGET="30M")
        dnn.goes_on(2)
        assert dnn.stats()["budget_bytes"] == 30 * MIB
        assert dnn.end() == (plain_bits(16), "")
    with dnns() as make:  # neither a budget nor a daemon: as without swapnet
        dnn = make(place, 16)
        dnn.goes_on(2)
        assert "SWAPNET_BUDGET is not set" in dnn.end()[1]


class Family:
    """One family.py under swapnet."""

    def __init__(self, place, directory, extra):
        self.report = f"{directory}/report"
        env = {"LD_PRELOAD": str(harness.LIBRARY), "SWAPNET_STORE": f"{directory}/store", "XDG_RUNTIME_DIR": place} | extra
        self.process = subprocess.Popen([TORCH.python, harness.PROGRAMS / "family.py", self.report],
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


@needs_torch
def test_exec_gives_back(place):
    """The same process, but another program: the lease was the old one's."""
    with daemon(place, "--total", "200M") as d, family(place) as one:
        before = one.said()
        assert before["pid"] == one.pid
        wait_for(lambda: d.list()[one.pid]["budget_bytes"] > 64 * MIB)
        os.unlink(one.report)
        one.tell(f"exec {TORCH.python} {harness.PROGRAMS / 'family.py'} {one.report}")
        assert one.said() == before  # with a lease of its own
        assert d.list()[one.pid]["state"] in ("running", "shrinking") and leased(d.ask({"op": "list"})) <= 200 * MIB
        one.tell("exec sleep 60")
        wait_for(lambda: not d.list(), why="what it had is given back")
        assert one.process.poll() is None


@needs_torch
def test_forked_child_registers(place):
    with daemon(place, "--total", "100M") as d, family(place) as one:
        before = one.said()
        one.tell("fork")
        child = one.said(".child")
        assert child["bits"] == before["bits"] and len(child["bits"]) == 1
        both = wait_for(lambda: len(d.list()) == 2 and d.list())
        assert sorted(both) == sorted([one.pid, child["pid"]])
        assert both[child["pid"]]["budget_bytes"] >= 8 * MIB and leased(d.ask({"op": "list"})) <= 100 * MIB
        os.kill(child["pid"], signal.SIGKILL)
        wait_for(lambda: list(d.list()) == [one.pid])


# ---- the process's own socket ----

@needs_torch
def test_set_through_its_own_socket(place):
    with dnns() as make:
        dnn = make(place, 24, SWAPNET_BUDGET="120M")
        dnn.goes_on(6)
        chance = random.Random(1)
        for _ in range(40):
            budget = chance.randrange(24, 130) * MIB
            answer = dnn.ask({"op": "set", "budget": budget})
            assert answer["budget_bytes"] == budget, answer
            now = wait_for(lambda: (s := dnn.stats()) and s["state"] == "running" and s)
            assert now["budget_bytes"] == budget and now["resident_bytes"] <= budget, now
        dnn.goes_on(6)
        before = dnn.stats()
        answer = dnn.ask({"op": "set", "budget": MIB, "urgency": 7})
        assert "at least" in answer["error"] and answer["minimum_bytes"] >= 8 * MIB
        after = dnn.stats()
        assert (after["budget_bytes"], after["urgency"]) == (before["budget_bytes"], before["urgency"])
        result = subprocess.run([CTL, "set", str(dnn.pid), "budget=64M", "urgency=2.5"], capture_output=True, text=True,
                                env=harness.clean_env({"XDG_RUNTIME_DIR": place}))
        assert result.returncode == 0 and "64.0 MiB" in result.stdout, result
        assert dnn.stats()["budget_bytes"] == 64 * MIB and dnn.stats()["urgency"] == 2.5
        assert dnn.end()[0] == plain_bits(24)


# ---- a daemon that dies: FAULTS.md rows 12, 13 ----

def kill_at_random(place, rounds):
    chance = random.Random(7)
    total = 120 * MIB
    d = Daemon(place, "--total", "120M")
    try:
        with dnns() as make:
            running = [make(place, 16), make(place, 12), make(place, 20)]
            for dnn in running:
                dnn.goes_on(3)
            for _ in range(rounds):
                if chance.random() < 0.5:  # in the middle of handing out other leases
                    with contextlib.suppress(OSError, ValueError):
                        d.ask({"op": "set", "pid": chance.choice(running).pid, "urgency": chance.uniform(0.5, 3)})
                time.sleep(chance.uniform(0, 0.3))
                d.kill()
                time.sleep(chance.uniform(0, 0.2))
                last = {dnn.pid: dnn.stats() for dnn in running}
                assert sum(s["budget_bytes"] for s in last.values()) <= total
                # Nobody hears of another lease now, and what was confirmed holds.
                assert all(s["resident_bytes"] <= s["budget_bytes"] for s in last.values()
                           if s["state"] == "running"), last
                for dnn in running:
                    dnn.goes_on(1)
                d.start()
                assert leased(d.ask({"op": "list"})) <= total
            for dnn in running:
                dnn.goes_on(3)
                wait_for(lambda: d.list().get(dnn.pid, {}).get("state") == "running", why="it registers again")
                assert dnn.stats()["resident_bytes"] <= dnn.stats()["budget_bytes"]
            for dnn, layers in zip(running, (16, 12, 20)):
                assert dnn.end()[0] == plain_bits(layers)
    finally:
        d.kill()


@needs_torch
def test_daemon_killed(place):
    kill_at_random(place, 4)


@needs_torch
@pytest.mark.slow
def test_daemon_killed_a_hundred_times(place):
    kill_at_random(place, 100)


@needs_torch
def test_restart_counts_what_it_finds(place):
    """HOLES rule 12: a process that cannot answer now has its lease all the same."""
    d = Daemon(place, "--total", "200M")
    try:
        with dnns() as make:
            dnn = make(place, 20)
            dnn.goes_on(3)
            held = wait_for(lambda: (p := d.list()[dnn.pid])["state"] == "running" and p["budget_bytes"])
            os.kill(dnn.pid, signal.SIGSTOP)
            d.kill()
            d.start()
            found = d.list()[dnn.pid]
            assert found["state"] == "away" and found["counted_bytes"] >= held
            with d.dial() as s:  # a newcomer gets what is left
                s.sendall(b'{"op":"hello","version":1,"name":"new","minimum":1048576,"demand":209715200}\n')
                wait_for(lambda: d.list().get(os.getpid(), {}).get("budget_bytes"))
                assert leased(d.ask({"op": "list"})) <= 200 * MIB
            os.kill(dnn.pid, signal.SIGCONT)
            wait_for(lambda: d.list()[dnn.pid]["state"] == "running", 30)
            dnn.end()
    finally:
        d.kill()


# ---- a hundred processes: FAULTS.md row 14 ----

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


def test_a_hundred_processes(place):
    total, chance, seed = 2000 * MIB, random.Random(3), 0
    with daemon(place, "--total", "2000M") as d:
        running = []
        try:
            end = time.monotonic() + 8
            while time.monotonic() < end:
                while len(running) < 100:
                    seed += 1
                    running.append(fork_dnn(d.socket, seed))
                for _ in range(chance.randrange(4)):
                    dead = running.pop(chance.randrange(len(running)))
                    os.kill(dead, signal.SIGKILL)
                    os.waitpid(dead, 0)
                listing = d.ask({"op": "list"})
                assert leased(listing) == listing["leased_bytes"] <= total, listing
            # When it is quiet again: the dead have nothing, and everybody who lives has a lease.
            wait_for(lambda: all(p["state"] == "running" for p in d.list().values()), 20)
            assert sorted(d.list()) == sorted(running)
            assert all(p["budget_bytes"] >= p["minimum_bytes"] for p in d.list().values())
        finally:
            for pid in running:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        wait_for(lambda: not d.list())
        assert seed > 120


# ---- clients that mean no good: FAULTS.md row 22 ----

def test_hostile_clients(place):
    with daemon(place, "--total", "100M") as d:
        held = []
        slow = d.dial()  # a byte at a time
        stop = threading.Event()

        def drip():
            for byte in b'{"op":"list","x":"' + b"x" * 10000:
                if stop.wait(0.05):
                    return
                try:
                    slow.send(bytes([byte]))
                except OSError:
                    return
        dripping = threading.Thread(target=drip)
        dripping.start()
        for _ in range(30):  # half a message, and then nothing
            s = d.dial()
            s.send(b'{"op":"hel')
            held.append(s)
        for junk in (b"\x00" * 70000, b"{" * 70000, b"[" * 300 + b"\n", b"\xff\xfe\n", b'{"op":"hello","version":"1"}\n',
                     b'{"op":"ack","seq":1}\n', b'{"op":"lease","seq":1,"budget":5}\n', b"\n" * 5000):
            s = d.dial()
            with contextlib.suppress(OSError):
                s.sendall(junk)
            held.append(s)
        passer = d.dial()  # descriptors that nobody asked for
        null = os.open("/dev/null", os.O_RDONLY)
        for _ in range(50):
            socket.send_fds(passer, [b" "], [null] * 20)
        os.close(null)
        flood = d.dial()  # asks, and never reads
        flood.setblocking(False)
        with contextlib.suppress(BlockingIOError, ConnectionError):
            for _ in range(100000):
                flood.send(b'{"op":"list"}\n')
        begin = time.monotonic()
        for _ in range(20):
            assert d.ask({"op": "version"})["protocol"] == 1
        assert time.monotonic() - begin < 5
        fds = len(os.listdir(f"/proc/{d.process.pid}/fd"))
        assert fds < 100, "descriptors were taken in"
        # The slow ones are gone a second later.
        for s in held[:30]:
            s.settimeout(10)
            assert s.recv(10) == b""
        slow.settimeout(10)
        assert slow.recv(10) == b""
        stop.set()
        dripping.join()
        for s in held + [slow, passer, flood]:
            s.close()
        wait_for(lambda: len(os.listdir(f"/proc/{d.process.pid}/fd")) < 15)
        assert d.process.poll() is None
        assert "swapnetd:" in d.end()


def cpu_ticks(pid):
    with open(f"/proc/{pid}/stat") as f:
        return sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13]))


def fork_liar(path, hello, leaves=False):
    """Says hello, and confirms nothing."""
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            s = socket.socket(socket.AF_UNIX)
            s.connect(path)
            s.sendall(json.dumps({"op": "hello", "version": 1, "name": "liar", "demand": MIB} | hello).encode() + b"\n")
            s.recv(1000)
            if leaves:
                s.close()
            time.sleep(60)
        os._exit(0)
    return pid


def test_numbers_that_cannot_be(place):
    """Whoever claims to hold or to use more than there is keeps nobody from it."""
    with daemon(place, "--total", "1000M") as d:
        liars = [fork_liar(d.socket, claim) for claim in
                 ({"lease": 1 << 52}, {"lease": 1 << 52, "minimum": MIB}, {"resident": 1 << 52})]
        honest = None
        try:
            wait_for(lambda: len(d.list()) == 3)
            honest = fork_dnn(d.socket, 1)  # needs 1 to 3 MiB, and can use up to 90
            granted = wait_for(lambda: d.list().get(honest, {}).get("budget_bytes"))
            listing = d.ask({"op": "list"})
            assert listing["leased_bytes"] <= 1000 * MIB and granted >= MIB, listing
        finally:
            for pid in filter(None, liars + [honest]):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def test_half_closed(place):
    """Who says that this was all, as `nc -N` does, gets the answer nevertheless, and the daemon does not spin for one who
    does not read it."""
    with daemon(place, "--total", "100M") as d:
        for request in (b'{"op":"version"}\n', b'{"op":"list"}\n' * 2000):
            with d.dial() as s:
                s.sendall(request)
                s.shutdown(socket.SHUT_WR)
                assert s.makefile().read().count('"schema"') == request.count(b"\n")
        with d.dial() as s:
            s.sendall(b'{"op":"list"}\n' * 4500)
            s.shutdown(socket.SHUT_WR)
            time.sleep(0.2)
            before = cpu_ticks(d.process.pid)
            time.sleep(0.5)
            assert cpu_ticks(d.process.pid) - before < 15, "it spins"


def resident(pid):
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith("VmRSS:"))


def test_answers_that_wait(place):
    """Room for them grows with what there is to say, and goes when it has been said."""
    asked = b'{"op":"list"}\n' * 4500
    with daemon(place, "--total", "100M") as d:
        before = resident(d.process.pid)
        held = [d.dial() for _ in range(20)]
        for s in held:
            s.sendall(asked)
        wait_for(lambda: resident(d.process.pid) > before + 20 * len(asked), 8, "nothing waits")
        assert resident(d.process.pid) < before + 24 * MIB  # 20 times 0.8 MiB
        for s in held:
            s.setblocking(True)
            got = 0
            while got < 4500:
                got += s.recv(1 << 20).count(b"\n")
        d.answers()
        assert resident(d.process.pid) < before + 3 * MIB
        for s in held:
            s.close()


@pytest.mark.slow
def test_a_program_that_never_reads(place):
    """What it was told fills the socket and more; some time later it is away, and goes on under its lease."""
    with daemon(place, "--total", "100M") as d, d.dial() as s:
        s.sendall(b'{"op":"hello","version":1,"name":"deaf","minimum":1048576,"demand":20971520}\n')
        s.sendall(b'{"op":"list"}\n' * 2500)
        wait_for(lambda: os.getpid() in d.list())
        time.sleep(1)
        assert d.list()[os.getpid()]["state"] != "away"
        wait_for(lambda: d.list()[os.getpid()]["state"] == "away", 20, "its answers wait for ever")
        assert d.list()[os.getpid()]["counted_bytes"]


def test_too_many_connections(place):
    with daemon(place, "--total", "100M", "--clients", "20") as d:
        held = [d.dial() for _ in range(20)]
        time.sleep(0.2)
        with d.dial() as s:
            assert "too many connections" in s.makefile().readline()
        for s in held:
            s.close()
        wait_for(d.answers)


def test_out_of_descriptors(place):
    """FAULTS.md row 34: says nothing wrong, takes nobody for dead, and goes on when there are some again."""
    with daemon(place, "--total", "100M") as d:
        away = fork_liar(d.socket, {}, leaves=True)
        wait_for(lambda: d.list().get(away, {}).get("state") == "away")
        subprocess.run(["prlimit", f"--pid={d.process.pid}", "--nofile=16:16"], check=True)
        held = [d.dial() for _ in range(40)]
        time.sleep(0.5)
        before = cpu_ticks(d.process.pid)
        time.sleep(1)
        assert cpu_ticks(d.process.pid) - before < 30, "it spins"
        for s in held:
            s.close()
        wait_for(d.answers)
        assert d.list()[away]["counted_bytes"]
        os.kill(away, signal.SIGKILL)
        os.waitpid(away, 0)
        wait_for(lambda: not d.list())


# ---- begin and end ----

def refuses(place, *args, code=1, **env):
    done = subprocess.run([DAEMON, *args], env=harness.clean_env({"XDG_RUNTIME_DIR": place} | env), capture_output=True,
                          text=True, timeout=20)
    assert done.returncode == code and done.stdout == "" and done.stderr.startswith("swapnetd: "), done
    return done.stderr


@pytest.mark.parametrize("args, part", [
    (("--total", "12x"), "total '12x'"), (("--total", "0%"), "share like 75%"), (("--policy", "fair"), "eq1, equal"),
    (("--nonsense",), "--nonsense"), (("word",), "word"), (("--cpus", "3-1"), "0-3,6"), (("--clients", "0"), "1 to 4096"),
    (("--config", "/nonexistent"), "/nonexistent"), (("--total",), "--total")])
def test_wrong_usage(place, args, part):
    assert part in refuses(place, *args, code=2)


def test_config_file(place, tmp_path):
    conf = tmp_path / "swapnetd.conf"
    conf.write_text("# comment\n\ntotal = 64M\npolicy=minmax # better\n")
    with daemon(place, "--config", conf, "--total", "96M") as d:
        listing = d.ask({"op": "list"})
        assert (listing["total_bytes"], listing["policy"]) == (96 * MIB, "minmax")  # the command line wins
    conf.write_text("total = 64M\n\nnonsense = 1\n")
    assert f"{conf}:3: there is no setting 'nonsense'" in refuses(place, "--config", str(conf), code=2)


def test_share_of_memory(place):
    with daemon(place, "--total", "10%") as d:
        listing = d.ask({"op": "list"})
        assert listing["follows_memory"] and listing["total_bytes"] >= 8 * MIB
        assert d.ctl("total", "64M").returncode == 0
        assert not d.ask({"op": "list"})["follows_memory"]


def test_stale_socket_and_second_daemon(place):
    d = Daemon(place, "--total", "100M")
    d.kill()
    assert os.path.exists(d.socket)
    with daemon(place, "--total", "100M") as d:
        assert stat.S_IMODE(os.stat(d.socket).st_mode) == 0o600
        assert "another swapnetd" in refuses(place, "--total", "50M")
        d.end()
        assert not os.path.exists(d.socket)


def test_places_where_it_cannot_listen(place):
    shutil.rmtree(f"{place}/swapnet")
    with daemon(place, "--total", "100M") as d:  # missing: made
        assert d.answers()
    shutil.rmtree(f"{place}/swapnet")
    os.mkdir(f"{place}/swapnet")
    os.chmod(f"{place}/swapnet", 0o777)
    assert "others can write" in refuses(place, "--total", "100M")
    assert "cannot listen" in refuses("/nonexistent/place", "--total", "100M")
    open(f"{place}/file", "w").close()
    os.chmod(place, 0o700)
    assert "cannot listen" in refuses(place, "--total", "100M", "--socket", f"{place}/file")


def test_notify_and_socket_activation(place):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.bind(f"{place}/notify")
        s.settimeout(10)
        with daemon(place, "--total", "100M") as d:
            d.end()
        env = harness.clean_env({"XDG_RUNTIME_DIR": place, "NOTIFY_SOCKET": f"{place}/notify"})
        process = subprocess.Popen([DAEMON, "--total", "100M"], env=env, stderr=subprocess.DEVNULL)
        assert "READY=1" in s.recv(1000).decode()
        process.terminate()
        assert "STOPPING=1" in s.recv(1000).decode()
        assert process.wait(10) == 0
    with socket.socket(socket.AF_UNIX) as listening:
        path = f"{place}/swapnet/swapnetd.sock"
        listening.bind(path)
        listening.listen()
        start = f"exec 3<&{listening.fileno()}; LISTEN_PID=$$ LISTEN_FDS=1 exec {DAEMON} --total 100M"
        process = subprocess.Popen(["bash", "-c", start], env=harness.clean_env({"XDG_RUNTIME_DIR": place}),
                                   pass_fds=[listening.fileno()], stderr=subprocess.DEVNULL)
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(10)
            s.connect(path)
            s.sendall(b'{"op":"version"}\n')
            assert json.loads(s.makefile().readline())["protocol"] == 1
        process.terminate()
        assert process.wait(10) == 0 and os.path.exists(path)  # the socket is systemd's


def test_messages_of_other_versions(place):
    """FAULTS.md row 13: unknown fields and messages do no harm, in both directions."""
    with daemon(place, "--total", "100M") as d:
        with d.dial() as s:
            lines = s.makefile()
            s.sendall(b'{"op":"hello","version":9,"name":"n","demand":10485760,"minimum":1,"color":[1,{"a":2}]}\n')
            assert json.loads(lines.readline())["op"] == "welcome"
            lease = json.loads(lines.readline())
            assert lease["op"] == "lease" and lease["budget"] == 10 * MIB
            s.sendall(b'{"op":"dance"}\n')
            assert "unknown op" in lines.readline()
            s.sendall(json.dumps({"op": "ack", "seq": lease["seq"], "mood": "good"}).encode() + b"\n")
            wait_for(lambda: d.list()[os.getpid()]["state"] == "running")
            s.sendall(b'{"op":"bye"}\n')
            wait_for(lambda: os.getpid() not in d.list())


def test_only_rulers_change(place):
    if os.geteuid() != 0:
        pytest.skip("needs a second user")
    os.chmod(place, 0o755)
    os.chmod(f"{place}/swapnet", 0o755)
    with daemon(place, "--total", "100M", "--group", "nogroup") as d:
        assert stat.S_IMODE(os.stat(d.socket).st_mode) == 0o660
        ask = ("import socket,sys;s=socket.socket(socket.AF_UNIX);s.connect(sys.argv[1]);"
               "s.sendall(sys.argv[2].encode()+b'\\n');print(s.makefile().readline())")
        def as_nobody(request):
            return subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3", "-c",
                                   ask, d.socket, request], capture_output=True, text=True, timeout=20).stdout
        assert '"total_bytes"' in as_nobody('{"op":"list"}')
        for request in ('{"op":"total","budget":9999999}', '{"op":"drain"}', '{"op":"set","pid":1,"urgency":2}'):
            assert "only root" in as_nobody(request)
        assert d.ask({"op": "list"})["total_bytes"] == 100 * MIB


def test_quota_of_one_user(place):
    if os.geteuid() != 0:
        pytest.skip("needs a second user")
    os.chmod(place, 0o755)
    os.chmod(f"{place}/swapnet", 0o755)
    with daemon(place, "--total", "100M", "--group", "nogroup", "--clients-per-user", "3") as d:
        dial = ("import socket,sys\ndef c():\n s=socket.socket(socket.AF_UNIX);s.connect(sys.argv[1]);"
                "s.sendall(b'{\"op\":\"version\"}\\n');return s,s.makefile().readline()\n"
                "print([c() for _ in range(5)][-1][1])")
        done = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3", "-c",
                               dial, d.socket], capture_output=True, text=True, timeout=20)
        assert "too many connections" in done.stdout or "Broken pipe" in done.stderr or "reset" in done.stderr, done
        assert d.answers()  # the daemon's own user is not held up
        # Nor does it help to start many processes that say hello and hang up: they keep their place while they live.
        hello = ("import os,socket,sys,time\npids=[]\nfor i in range(5):\n r,w=os.pipe();pids.append(os.fork())\n"
                 " if not pids[-1]:\n  s=socket.socket(socket.AF_UNIX);s.connect(sys.argv[1]);"
                 "s.sendall(b'{\"op\":\"hello\",\"version\":1}\\n');os.write(w,s.recv(99));s.close();time.sleep(20)\n"
                 " print(os.read(r,99).decode().splitlines()[0])\nfor p in pids: os.kill(p,9)\n")
        done = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3", "-c",
                               hello, d.socket], capture_output=True, text=True, timeout=20)
        assert ["welcome" in line for line in done.stdout.splitlines()] == [True] * 3 + [False] * 2, done
        assert done.stdout.count("too many processes") == 2, done

@needs_torch
def test_cpus(place):
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("one CPU")
    with daemon(place, "--total", "200M", "--cpus", f"{cpus[0]},{cpus[1]}") as d, dnns() as make:
        one = make(place, 4)
        one.goes_on(2)
        assert os.sched_getaffinity(one.pid) == {cpus[0], cpus[1]}
        two = make(place, 4)
        two.goes_on(2)
        assert os.sched_getaffinity(one.pid) | os.sched_getaffinity(two.pid) == {cpus[0], cpus[1]}
        assert not os.sched_getaffinity(one.pid) & os.sched_getaffinity(two.pid)
        for tid in os.listdir(f"/proc/{one.pid}/task"):
            assert os.sched_getaffinity(int(tid)) == os.sched_getaffinity(one.pid)
        one.end()
        wait_for(lambda: os.sched_getaffinity(two.pid) == {cpus[0], cpus[1]})
        two.end()
        assert d.process.poll() is None
