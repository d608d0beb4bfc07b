"""swapnet-serve under storms: its engine and itself killed again and again, thousands of connections, and load for long.

Short by default. SWAPNET_STORM_KILLS, SWAPNET_STORM_CONNECTIONS and SWAPNET_STORM_MINUTES make the slow ones longer;
with SWAPNET_STORM_REAL=1 the killed engine is swapnet-engine with a model of PyTorch. Numbers are printed (pytest -s)."""
import concurrent.futures
import contextlib
import gzip
import json
import os
import pathlib
import random
import resource
import signal
import socket
import statistics
import threading
import time

import pytest

import harness
import serve_front
from serve_front import Front, binary, body_of, front, repository, tensor, wait_for

pytestmark = serve_front.needs_serve

KILLS = int(os.environ.get("SWAPNET_STORM_KILLS", "60"))
CONNECTIONS = int(os.environ.get("SWAPNET_STORM_CONNECTIONS", "10000"))
MINUTES = float(os.environ.get("SWAPNET_STORM_MINUTES", "0.5"))
VALUES = [0.0, 1.5, -2.25, 1024.0]
BODY = body_of(tensor(VALUES))
# The engine is there again within so long; where others load the machine, within twice the time of its first start.
BACK_S = 2.0
# Free memory that the server keeps (TRIM_BYTES of scheduler/http/main.c): by so much what it has goes up and down by itself.
KEPT_FREE_KIB = 2048
CLOSE_WAIT = "08"  # of /proc/net/tcp: the other end has closed


def distribution(seconds):
    ms = sorted(1000 * one for one in seconds)
    return " ".join(f"{name} {ms[min(len(ms) - 1, int(part * len(ms)))]:.0f}" for name, part in
                    (("least", 0), ("median", .5), ("p90", .9), ("p99", .99), ("most", 1))) + f" ms of {len(ms)}"


def kib(pid, key):
    """A number of /proc/PID/status."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(text.partition(key + ":")[2].split()[0])


@contextlib.contextmanager
def working(clients, work):
    """Calls work(client) again and again, each in a thread of its own; what it raises is raised at the end."""
    stop = threading.Event()

    def again(client):
        while not stop.is_set():
            work(client)
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        threads = [pool.submit(again, client) for client in range(clients)]
        try:
            yield
        finally:
            stop.set()
        for thread in threads:
            thread.result()


# ---- kill -9 of the engine ----

@contextlib.contextmanager
def killable(tmp_path):
    """(server, model, body)"""
    if not os.environ.get("SWAPNET_STORM_REAL"):
        with front(repository(tmp_path, echo="slow_ms=2")) as f:
            yield f, "echo", BODY
        return
    with harness.disk_dir() as where:
        harness.plain(harness.TORCH113, "save_models", str(where), "net:256:8:4")
        (where / "models" / "net" / "1").mkdir(parents=True)
        (where / "net.pt").rename(where / "models" / "net" / "1" / "model.pt")
        env = {"SWAPNET_PYTHON": harness.TORCH113.python, "SWAPNET_STORE": str(where / "store"), "SWAPNET_DAEMON": "off"}
        with front(where / "models", "--engine", harness.BUILD / "bin" / "swapnet-engine", "--library", harness.LIBRARY,
                   "--buffers", "16M", memory="64M", env=env) as f:
            yield f, "net", json.dumps({"inputs": [{"name": "input", "shape": [4, 256], "datatype": "FP32",
                                                    "data": [0.5] * 1024}]}).encode()


@pytest.mark.slow
@pytest.mark.alone
def test_engine_that_is_killed_again_and_again_is_back_in_time(tmp_path):
    began = time.monotonic()
    with killable(tmp_path) as (f, model, body):
        f.ready()
        start_s = time.monotonic() - began
        done = []
        local = threading.local()

        def work(_):
            local.c = getattr(local, "c", None) or f.connection()
            status, headers, _ = f.infer(model, body, connection=local.c)
            done.append((time.monotonic(), status, status == 200 or (status == 503 and "Retry-After" in headers)))
        back = []
        with working(6, work):
            for _ in range(KILLS):
                wait_for(lambda: f.engines() and done and done[-1][1] == 200)
                time.sleep(random.random() * 0.05)
                engine, = f.engines()
                os.kill(engine, signal.SIGKILL)
                killed = time.monotonic()
                wait_for(lambda: engine not in f.engines() and f.engines())
                c = f.connection()
                while f.infer(model, body, connection=c)[0] != 200:
                    time.sleep(0.005)
                c.close()
                back.append(time.monotonic() - killed)
        statuses = [status for _, status, _ in done]
        print(f"\nengine back after: {distribution(back)}; {len(done)} requests, {statuses.count(200)} answered 200, "
              f"{statuses.count(503)} to be retried")
        assert all(right for *_, right in done), set(statuses)
        assert f.metric("swapnet_serve_engine_restarts_total") == KILLS
        assert max(back) < max(BACK_S, 2 * start_s)


# ---- kill -9 of the server ----

def are_gone(pids):
    """But for what nobody has reaped yet."""
    for pid in pids:
        with contextlib.suppress(OSError):
            if pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z":
                return False
    return True


def left_behind():
    """What a server could leave where it may write: shared memory, sockets and files of ours, but for those of other tests."""
    return {path for folder in ("/dev/shm", "/tmp", "/run") for path in pathlib.Path(folder).glob("*swapnet*")
            if not path.name.startswith("swapnet-e2e")}


def test_server_that_is_killed_leaves_nothing_and_is_back_at_once(tmp_path):
    """As a supervisor would start it again: its port is free, its engines are gone, and its models are there within a second."""
    repo, port, back, before = repository(tmp_path, echo="", other="groups=1"), "0", [], left_behind()
    times = KILLS if os.environ.get("SWAPNET_STORM_KILLS") else 5
    for _ in range(times):
        began = time.monotonic()
        f = Front(repo, "--http-port", port)
        try:
            f.ready()
            assert f.infer("echo", BODY)[0] == f.infer("other", BODY)[0] == 200
            back.append(time.monotonic() - began)
            port = str(f.port)
            idle = [f.dial() for _ in range(20)]  # connections that it has when it dies
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                work = [pool.submit(f.infer, "echo", BODY) for _ in range(40)]
                engines = f.engines()
                f.process.kill()
                f.process.wait()
                for one in work:
                    with contextlib.suppress(OSError, ConnectionError, serve_front.http.client.HTTPException):
                        assert one.result()[0] == 200
            wait_for(lambda pids=engines: are_gone(pids), "the engines' end")
            for s in idle:
                s.close()
        finally:
            f.process.kill()
            f.process.wait()
            f.process.stderr.close()
    print(f"\nserver back after: {distribution(back)}")
    assert left_behind() == before
    assert statistics.median(back) < 1


# ---- connections ----

def latency(f, connection, count=30):
    """Of a request, the median in seconds."""
    times = []
    for _ in range(count):
        began = time.monotonic()
        assert f.infer("echo", BODY, connection=connection)[0] == 200
        times.append(time.monotonic() - began)
    return statistics.median(times)


def dial_from(f, number):
    """One source address has 28,000 ports; others of the loopback network have theirs."""
    s = socket.socket()
    s.settimeout(serve_front.PATIENCE_S)
    s.bind((f"127.0.0.{2 + number // 5000}", 0))
    s.connect(("127.0.0.1", f.port))
    return s


def read_slowly(f, size, stop):
    """Asks for an answer of `size` floats, and takes a few bytes of it now and then."""
    body, headers = binary([1.0] * size)
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.settimeout(serve_front.PATIENCE_S)
        s.connect(("127.0.0.1", f.port))
        s.sendall(b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nInference-Header-Content-Length: %s\r\n\r\n"
                  % (len(body), headers["Inference-Header-Content-Length"].encode()) + body)
        while not stop.wait(0.1):
            s.recv(512)


def write_slowly(f, stop):
    with f.dial() as s:
        s.sendall(b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n{")
        while not stop.wait(0.1):
            s.sendall(b" ")


@pytest.mark.slow
@pytest.mark.alone
def test_thousands_of_idle_connections_cost_others_nothing(tmp_path):
    """The same requests to a server with them and to one without, in turns."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < CONNECTIONS + 200:
        pytest.skip(f"needs RLIMIT_NOFILE of {CONNECTIONS + 200}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    options = ["--connections", str(CONNECTIONS + 100), "--header-timeout-secs", "600", "--idle-timeout-secs", "600", "--buffers", "16M"]
    repo, stop, idle = repository(tmp_path, echo=""), threading.Event(), []
    try:
        with front(repo, *options, memory="1G") as crowded, front(repo, *options, memory="1G") as empty, \
                concurrent.futures.ThreadPoolExecutor(16) as pool:
            crowded.ready(), empty.ready()
            latency(crowded, None)
            memory = kib(crowded.process.pid, "RssAnon")
            idle = [dial_from(crowded, number) for number in range(CONNECTIONS)]
            for s in idle[::2]:  # half have begun to say something
                s.sendall(b"GET /v2 HTTP/1.1\r\nX: ")
            slow = [pool.submit(read_slowly, crowded, 300000, stop) for _ in range(4)] + \
                   [pool.submit(write_slowly, crowded, stop) for _ in range(8)]
            wait_for(lambda: crowded.metric("swapnet_serve_connections") >= CONNECTIONS)
            ratios, (a, b) = [], (crowded.connection(), empty.connection())
            for _ in range(15):
                ratios.append(latency(crowded, a) / latency(empty, b))
            grown = (kib(crowded.process.pid, "RssAnon") - memory) / CONNECTIONS
            print(f"\n{CONNECTIONS} connections: latency x {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}), "
                  f"{grown:.1f} KiB for each")
            stop.set()
            for one in slow:
                with contextlib.suppress(OSError):
                    one.result()
            assert grown < 20  # what --memory counts for each
            assert statistics.median(ratios) < 1.5
            for s in idle:
                s.close()
            wait_for(lambda: crowded.descriptors() < 100, "closing")
    finally:
        stop.set()
        for s in idle:
            s.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# ---- load for long ----

def one_of_all(f, rng, connection):
    """Something that clients do, right or wrong."""
    path = "/v2/models/echo/infer"
    head = b"POST " + path.encode() + b" HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
    what = rng.randrange(12)
    if what < 4:
        assert f.infer("echo", BODY, connection=connection)[0] in (200, 503, 404)
    elif what == 4:
        assert f.infer("echo", *binary([1.0] * rng.randrange(1, 50000)), connection=connection)[0] in (200, 503, 404)
    elif what == 5:
        f.ask("POST", path, gzip.compress(BODY), {"Content-Encoding": "gzip", "Accept-Encoding": "gzip"}, connection)
    elif what == 6:
        assert f.ask("POST", path, b"{" * rng.randrange(2000), connection=connection)[0] in (400, 404, 503)
    elif what == 7:
        with f.dial() as s:  # gone before its answer, or before its body
            s.sendall(head % len(BODY) + BODY[:rng.choice([0, 10, len(BODY)])])
    elif what == 8:
        assert f.infer("slow", body_of(tensor(VALUES), parameters={"timeout": rng.randrange(1, 20000)}),
                       connection=connection)[0] in (200, 503)
    elif what == 9:
        assert f.infer("wrong", BODY, connection=connection)[0] in (500, 503)
    elif what == 10:
        verb = rng.choice(["load", "unload"])
        f.ask("POST", f"/v2/repository/models/{rng.choice(['echo', 'other', 'none', 'work'])}/{verb}", connection=connection)
    else:
        f.ask("GET", rng.choice(["/metrics", "/v2", "/v2/models/stats", "/v2/health/ready", "/no"]), connection=connection)


def descriptors(pid):
    """(inodes of the sockets whose clients have left, how many descriptors are no TCP socket)"""
    inodes, others = set(), 0
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            kind, _, inode = os.readlink(fd).partition(":")
            if kind == "socket":
                inodes.add(inode.strip("[]"))
            else:
                others += 1

    def rows(table, inode):
        lines = pathlib.Path(f"/proc/{pid}/net/{table}").read_text(encoding="utf-8").splitlines()[1:]
        return [row for row in map(str.split, lines) if row[inode] in inodes]
    return {row[9] for row in rows("tcp", 9) if row[3] == CLOSE_WAIT}, others + len(rows("unix", 6))


class Watched:
    """What a process takes, sampled under load."""

    def __init__(self, pid):
        self.pid, self.began = pid, time.monotonic()
        self.times, self.memory, self.maps, self.left, self.other = [], [], [], [], []
        self.since, self.oldest_s = {}, 0.0

    def sample(self):
        left, others = descriptors(self.pid)
        now = time.monotonic() - self.began
        self.since = {one: self.since.get(one, now) for one in left}
        self.oldest_s = max([self.oldest_s, *(now - since for since in self.since.values())])
        self.times.append(now)
        self.memory.append(kib(self.pid, "RssAnon"))
        self.maps.append(len(pathlib.Path(f"/proc/{self.pid}/maps").read_text(encoding="utf-8").splitlines()))
        self.left.append(len(left))
        self.other.append(others)

    def growth(self, since):
        """KiB from the peak of the first `since` samples to the peak of all, but for what more connections at once take:
        those of clients that left stay for up to two seconds, each with its pool for headers."""
        more = max(self.left) - max(self.left[:since])
        return max(self.memory) - max(self.memory[:since]) - 20 * more

    def late_growth(self):
        return self.growth(len(self.memory) // 2)

    def say(self, who):
        half = len(self.times) // 2
        slope = statistics.linear_regression([t / 60 for t in self.times[half:]], self.memory[half:]).slope
        print(f"\n{who}: {self.memory[0]} to {self.memory[-1]} KiB, in the second half {slope:+.1f} KiB a minute, "
              f"{self.late_growth():+} KiB beside connections; clients that left {min(self.left)} to {max(self.left)}, for "
              f"{self.oldest_s:.1f} s at most; other descriptors {min(self.other)} to {max(self.other)}; "
              f"mappings {self.maps[0]} to {self.maps[-1]}")


@pytest.mark.slow
def test_nothing_grows_under_load(tmp_path):
    repo = repository(tmp_path, echo="", other="inputs=2", slow="slow_ms=5 groups=4", wrong="fail=it_broke")
    (repo / "work" / "1").mkdir(parents=True)
    (repo / "work" / "1" / "model.py").write_text("")
    with front(repo, "--model-control-mode", "explicit", "--load-model", "*", "--buffers", "32M") as f:
        f.ready()
        rngs, local = [random.Random(seed) for seed in range(6)], threading.local()

        def work(client):
            local.c = getattr(local, "c", None) or f.connection()
            try:
                one_of_all(f, rngs[client], local.c)
            except (ConnectionError, serve_front.http.client.HTTPException):  # the server closes some of them after an error
                local.c.close()
                local.c = None
        before, end = f.descriptors(), time.monotonic() + 60 * MINUTES
        server, engine = Watched(f.process.pid), Watched(f.engines()[0])
        with working(6, work):
            time.sleep(min(10, 10 * MINUTES))
            while time.monotonic() < end:
                server.sample()
                engine.sample()
                time.sleep(0.5)
        for who, one in (("server", server), ("engine", engine)):
            one.say(who)
            assert one.growth(since=1) < 4096
            assert one.late_growth() < KEPT_FREE_KIB  # in some minutes, a dozen bytes a request
            assert one.oldest_s < 10
            assert max(one.other) <= one.other[0] + 10
            assert one.maps[-1] <= one.maps[0] + 100  # of tens of thousands of requests; the address sanitizer's are among them
        wait_for(lambda: f.descriptors() <= before + 10, "closing")
        wait_for(lambda: f.metric("swapnet_serve_requests") == 0)
        wait_for(lambda: f.metric("swapnet_serve_buffer_used_bytes") == 0)
        engine.sample()
        assert engine.other[-1] <= engine.other[0] + 2
