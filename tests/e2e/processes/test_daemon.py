"""swapnetd by itself: clients that mean no good, settings, begin and end."""
import contextlib
import json
import os
import random
import resource
import shutil
import signal
import socket
import stat
import subprocess
import threading
import time

import pytest

import harness
from daemons import CTL, DAEMON, Daemon, daemon, fork_dnn, leased, stop, wait_for
from harness import MIB


# ---- clients that mean no good ----

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
        assert time.monotonic() - begin < 25  # each of the 30 slow ones would take a second
        fds = len(os.listdir(f"/proc/{d.process.pid}/fd"))
        assert fds < 100, "descriptors were taken in"
        # The slow ones are gone a second later.
        for s in held[:30]:
            s.settimeout(harness.HANG_S)
            assert s.recv(10) == b""
        slow.settimeout(harness.HANG_S)
        with contextlib.suppress(ConnectionResetError):  # a byte came when the daemon had stopped reading
            assert slow.recv(10) == b""
        stop.set()
        dripping.join()
        for s in held + [slow, passer, flood]:
            s.close()
        wait_for(lambda: len(os.listdir(f"/proc/{d.process.pid}/fd")) < 15)
        assert d.process.poll() is None
        assert "swapnetd:" in d.end()

# Words of the protocol, which random frames are made of as well.
FRAMES = [b'{"op":"hello","version":1,"name":"x","minimum":1048576,"demand":99999999,"latency":0.5}', b'{"op":"ack","seq":1}',
          b'{"op":"update","demand":1,"curve":[1048576,0.5,2097152,0.25]}', b'{"op":"set","pid":1,"urgency":2}',
          b'{"op":"list"}', b'{"op":"version"}', b'{"op":"total","budget":83886080}']


def frame(chance):
    text = bytearray(chance.choice(FRAMES))
    for _ in range(chance.randrange(6)):
        at = chance.randrange(len(text))
        how = chance.randrange(4)
        if how == 0:
            text[at] = chance.randrange(256)
        elif how == 1:
            del text[at:at + chance.randrange(1, 9)]
        elif how == 2:
            text[at:at] = text[at:] * chance.randrange(1, 30)
        else:
            text[at:at] = str(chance.choice([-1, 0, 1 << 31, 1 << 53, 1 << 64, 1e308])).encode()
        text = text or bytearray(b"{")
    return bytes(text) + (b"\n" if chance.random() < 0.9 else b"")


@pytest.mark.slow
def test_random_frames(place):
    """For $SWAPNET_FRAMES_S seconds (20), from eight connections at a time, of which some are broken off, while one client
    behaves itself. Frames as $SWAPNET_FRAMES_SEED has them."""
    chance, sent = random.Random(int(os.environ.get("SWAPNET_FRAMES_SEED", "5"))), 0
    with daemon(place, "--total", "100M") as d:
        good, connections = fork_dnn(d.socket, 1), []
        try:
            wait_for(lambda: d.list().get(good, {}).get("state") == "running")
            end = time.monotonic() + float(os.environ.get("SWAPNET_FRAMES_S", "20"))
            while time.monotonic() < end:
                while len(connections) < 8:
                    connections.append(d.dial())
                    connections[-1].setblocking(False)
                at = chance.randrange(8)
                try:
                    for _ in range(chance.randrange(1, 20)):
                        sent += connections[at].send(frame(chance)) > 0
                    while chance.random() < 0.5 and connections[at].recv(65536):
                        pass
                except BlockingIOError:
                    pass
                except OSError:
                    connections.pop(at).close()
                    continue
                if chance.random() < 0.02:
                    connections.pop(at).close()
            for s in connections:
                s.close()

            def has_parted():  # a hello so soon after so many may be refused
                with d.dial() as s:
                    s.sendall(b'{"op":"hello","version":1}\n{"op":"bye"}\n')
                    s.makefile().readline()
                return os.getpid() not in d.list()

            wait_for(has_parted)  # what a frame had it promise to this process, above a total of another one, is given back
            try:
                wait_for(lambda: d.list().get(good, {}).get("state") == "running")
            except AssertionError:
                ended = os.waitid(os.P_PID, good, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                pytest.fail(f"process {good} {f'has ended: {ended}' if ended else 'lives'}; {sent} frames were sent; the "
                            f"daemon says {d.ask({'op': 'list'})}")
            listing = d.ask({"op": "list"})
            assert leased(listing) <= listing["total_bytes"], listing
            assert sent > 1000, sent
        finally:
            os.kill(good, signal.SIGKILL)
            os.waitpid(good, 0)


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
        for _ in range(5):  # it hangs up on who has read nothing for ten seconds, in which a busy machine may not get far
            before = resident(d.process.pid)
            with contextlib.ExitStack() as stack, contextlib.suppress(ConnectionResetError):
                held = [stack.enter_context(d.dial()) for _ in range(6)]
                for s in held:
                    s.sendall(asked)
                wait_for(lambda: resident(d.process.pid) > before + 6 * len(asked), 8, "nothing waits")
                assert resident(d.process.pid) < before + 8 * MIB  # 6 times 0.8 MiB
                for s in held:
                    got = 0
                    while got < 4500:
                        some = s.recv(1 << 20).count(b"\n")
                        if not some and not s.recv(1, socket.MSG_PEEK):
                            raise ConnectionResetError
                        got += some
                break
        else:
            pytest.fail("its answers are never all read")
        d.answers()
        wait_for(lambda: resident(d.process.pid) < before + 2 * MIB, why="what has been said takes room")


@pytest.mark.slow
def test_a_program_that_never_reads(place):
    """What it was told fills the socket and more; some time later it is away, and goes on under its lease."""
    with daemon(place, "--total", "100M") as d, d.dial() as s:
        s.sendall(b'{"op":"hello","version":1,"name":"deaf","minimum":1048576,"demand":20971520}\n')
        s.sendall(b'{"op":"list"}\n' * 2500)
        wait_for(lambda: os.getpid() in d.list())
        time.sleep(1)
        assert d.list()[os.getpid()]["state"] != "away"
        wait_for(lambda: d.list()[os.getpid()]["state"] == "away", why="its answers wait for ever")
        assert d.list()[os.getpid()]["counted_bytes"]


@pytest.mark.slow
def test_a_daemon_that_was_stopped(place):
    """For longer than it waits for those who read nothing: who has read meanwhile is not taken for one of them."""
    with daemon(place, "--total", "100M") as d, d.dial() as s:
        s.sendall(b'{"op":"hello","version":1,"name":"reader","minimum":1048576,"demand":20971520}\n')
        s.sendall(b'{"op":"list"}\n' * 2500)
        lines = s.makefile()
        for _ in range(100):
            lines.readline()
        wait_for(lambda: os.getpid() in d.list())
        stop(d.process.pid)
        try:
            for _ in range(200):
                lines.readline()
            time.sleep(10.5)
        finally:
            os.kill(d.process.pid, signal.SIGCONT)
        for _ in range(2000):
            assert lines.readline(), "it was hung up on"
        assert d.list()[os.getpid()]["state"] != "away"


def test_a_program_that_reads_late(place):
    """It hears of the lease that counts, not of all those before it one by one, which would take it ever further behind."""
    changes = 4000
    with daemon(place, "--total", "100M") as d, d.dial() as s, d.dial() as ruler:
        s.sendall(b'{"op":"hello","version":1,"name":"late","minimum":1048576,"demand":209715200}\n')
        wait_for(lambda: d.list().get(os.getpid(), {}).get("budget_bytes") == 100 * MIB)
        answers = ruler.makefile()
        for i in range(0, changes, 100):
            ruler.sendall(b"".join(b'{"op":"total","budget":%d}\n' % ((64 + k % 32) * MIB) for k in range(i, i + 100)))
            for _ in range(100):
                assert "error" not in json.loads(answers.readline())
        lease = d.list()[os.getpid()]
        assert lease["state"] in ("shrinking", "holding") and lease["budget_bytes"] == (64 + (changes - 1) % 32) * MIB, lease
        lines, heard = s.makefile(), []
        while not heard or heard[-1]["seq"] <= changes:  # the first lease is number 1, and each change makes another
            message = json.loads(lines.readline())
            heard += [message] if message["op"] == "lease" else []
        assert len(heard) < changes / 4, len(heard)
        s.sendall(json.dumps({"op": "ack", "seq": heard[-1]["seq"]}).encode() + b"\n")
        wait_for(lambda: d.list()[os.getpid()]["state"] == "running", why=f"that was not the last lease: {heard[-1]}")
        assert d.list()[os.getpid()]["counted_bytes"] == lease["budget_bytes"]


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
    """Says nothing wrong, takes nobody for dead, and goes on when there are some again."""
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
        assert d.end().count("cannot accept connections: Too many open files") == 1


def test_out_of_memory(place):
    """It hangs up on those for whose answers there is none, promises nothing twice, and goes on."""
    with daemon(place, "--total", "100M") as d:
        away = fork_liar(d.socket, {}, leaves=True)
        wait_for(lambda: d.list().get(away, {}).get("state") == "away")
        with open(f"/proc/{d.process.pid}/status", encoding="ascii") as status:
            size = next(int(line.split()[1]) << 10 for line in status if line.startswith("VmSize:"))
        resource.prlimit(d.process.pid, resource.RLIMIT_AS, (size, resource.RLIM_INFINITY))
        with contextlib.ExitStack() as stack:
            held, refused = [stack.enter_context(d.dial()) for _ in range(20)], 0
            for s in held:
                with contextlib.suppress(OSError):
                    s.sendall(b'{"op":"list"}\n' * 4000)  # which it cannot keep, and nobody reads
                    s.sendall(b'{"op":"hello","version":1,"minimum":1048576,"demand":1048576}\n')
            for s in held:
                lines, got = 0, b"."
                with contextlib.suppress(ConnectionError):
                    while got and lines < 4000:
                        got = s.recv(1 << 20)
                        lines += got.count(b"\n")
                refused += lines < 4000
        assert refused, "there was memory for all of them"
        resource.prlimit(d.process.pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        wait_for(d.answers)
        listing = d.ask({"op": "list"})
        assert leased(listing) <= listing["total_bytes"] and d.list()[away]["counted_bytes"], listing
        os.kill(away, signal.SIGKILL)
        os.waitpid(away, 0)
        wait_for(lambda: not d.list())


# ---- begin and end ----

def refuses(place, *args, code=1, **env):
    done = subprocess.run([DAEMON, *args], env=harness.clean_env({"XDG_RUNTIME_DIR": place} | env), capture_output=True,
                          text=True, timeout=harness.HANG_S)
    assert done.returncode == code and done.stdout == "" and done.stderr.startswith("swapnetd: "), done
    return done.stderr


@pytest.mark.parametrize("args, part", [
    (("--total", "12x"), "total '12x'"), (("--total", "0%"), "share like 75%"), (("--policy", "fair"), "eq1, equal"),
    (("--nonsense",), "--nonsense"), (("word",), "word"), (("--cpus", "3-1"), "0-3,6"), (("--clients", "0"), "1 to 4096"),
    (("--config", "/nonexistent"), "/nonexistent"), (("--total",), "--total"), (("--cpus", "1023"), "'1023' are not there"),
    (("--config", "/" + "x" * 5000), "too long"),
    (("--group", "nosuch"), "a group that this machine has")])
def test_wrong_usage(place, args, part):
    assert part in refuses(place, *args, code=2)


def test_cpus_that_are_not_there_are_left_out(place):
    """A program whose part had only such CPUs had all of the machine's."""
    cpu = min(os.sched_getaffinity(0))
    with daemon(place, "--total", "64M", "--cpus", f"{cpu},1020-1022") as d:
        d.answers()
        d.process.terminate()
        assert f"cpus '1020-1022' are not there: programs share {cpu}\n" in d.process.communicate()[1]


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
        result = d.ctl("total", "auto")
        assert result.returncode == 0 and " leased " in result.stdout, result
        followed = d.ask({"op": "list"})
        assert followed["follows_memory"] and followed["total_bytes"] > listing["total_bytes"] / 2
        assert d.ctl("total", "0").returncode == 2


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


def test_directory_of_another_user_is_not_used(place):
    """Root's daemon with a user's XDG_RUNTIME_DIR, as after su: neither through a link, nor in a directory of the user's."""
    if os.geteuid() != 0:
        pytest.skip("needs a second user")
    os.mkdir(f"{place}/user", 0o700)
    os.mkdir(f"{place}/roots", 0o755)
    os.symlink(f"{place}/roots", f"{place}/user/swapnet")
    assert "symbolic link" in refuses(f"{place}/user", "--total", "100M")
    os.chown(f"{place}/user", 65534, 65534)
    assert "others can write to its directory, or to one above it" in refuses(f"{place}/user", "--total", "100M")
    os.remove(f"{place}/user/swapnet")
    assert "one above it" in refuses(f"{place}/user", "--total", "100M")
    assert not os.listdir(f"{place}/roots") and not os.listdir(f"{place}/user")


@contextlib.contextmanager
def inherited_sighup(disposition):
    """What children inherit: nohup has them ignore SIGHUP."""
    before = signal.signal(signal.SIGHUP, disposition)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def test_terminal_that_is_gone_is_ignored_under_nohup(place):
    with inherited_sighup(signal.SIG_IGN), daemon(place, "--total", "100M") as d:
        d.process.send_signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            d.process.wait(0.5)
        d.process.send_signal(signal.SIGTERM)
        assert d.process.wait(harness.HANG_S) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_that_end_it(place, number):
    with inherited_sighup(signal.SIG_DFL), daemon(place, "--total", "100M") as d:
        d.process.send_signal(number)
        assert d.process.wait(harness.HANG_S) == 0 and not os.path.exists(d.socket)


def test_notify_and_socket_activation(place):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.bind(f"{place}/notify")
        s.settimeout(harness.HANG_S)
        with daemon(place, "--total", "100M") as d:
            d.end()
        env = harness.clean_env({"XDG_RUNTIME_DIR": place, "NOTIFY_SOCKET": f"{place}/notify"})
        process = subprocess.Popen([DAEMON, "--total", "100M"], env=env, stderr=subprocess.DEVNULL)
        assert "READY=1" in s.recv(1000).decode()
        process.terminate()
        assert "STOPPING=1" in s.recv(1000).decode()
        assert process.wait(harness.HANG_S) == 0
    with socket.socket(socket.AF_UNIX) as listening:
        path = f"{place}/swapnet/swapnetd.sock"
        listening.bind(path)
        listening.listen()
        start = f"exec 3<&{listening.fileno()}; LISTEN_PID=$$ LISTEN_FDS=1 exec {DAEMON} --total 100M"
        env = harness.clean_env({"XDG_RUNTIME_DIR": place})
        marker, process = f"{place}/swapnet/swapnetd.stopped", None
        for end in signal.SIGTERM, signal.SIGKILL:
            process = subprocess.Popen(["bash", "-c", start], env=env, pass_fds=[listening.fileno()], stderr=subprocess.DEVNULL)
            with socket.socket(socket.AF_UNIX) as s:
                s.settimeout(harness.HANG_S)
                s.connect(path)
                s.sendall(b'{"op":"hello","version":1,"minimum":1048576,"demand":1048576}\n')
                lines = s.makefile()
                assert json.loads(lines.readline())["op"] == "welcome" and json.loads(lines.readline())["op"] == "lease"
                assert not os.path.exists(marker)
                process.send_signal(end)
                assert process.wait(harness.HANG_S) == (0 if end == signal.SIGTERM else -end)
            assert os.path.exists(path)  # the socket is systemd's
            assert os.path.exists(marker) == (end == signal.SIGTERM)
        listening.close()  # systemd lets go of it, too
        run = [CTL, "run", "true"]
        assert subprocess.run(run, env=env, timeout=harness.HANG_S).returncode == 0  # killed: there will be a budget
        open(marker, "w").close()
        result = subprocess.run(run, env=env, timeout=harness.HANG_S, capture_output=True, text=True)
        assert result.returncode == 125 and "no budget" in result.stderr, result


def test_messages_of_other_versions(place):
    """Unknown fields and messages do no harm, in both directions."""
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
                                   ask, d.socket, request], capture_output=True, text=True, timeout=harness.HANG_S).stdout
        assert '"total_bytes"' in as_nobody('{"op":"list"}')
        for request in ('{"op":"total","budget":9999999}', '{"op":"drain"}', '{"op":"set","pid":1,"urgency":2}'):
            assert "only root" in as_nobody(request)
        assert d.ask({"op": "list"})["total_bytes"] == 100 * MIB


def test_connection_of_a_process_that_is_another_by_now_gets_nothing(place):
    """Its number has been given to another process, or it has become another user's."""
    namespace = ["unshare", "--fork", "--pid", "--mount-proc"]
    if os.geteuid() != 0 or subprocess.run([*namespace, "test", "-w", "/proc/sys/kernel/ns_last_pid"]).returncode:
        pytest.skip("needs root, and PID namespaces whose numbers it may choose")
    done = subprocess.run([*namespace, "/usr/bin/python3", harness.program_file("recycled_pid"), f"{place}/record",
                           f"{place}/swapnet/s.sock", DAEMON], timeout=harness.HANG_S, env=harness.clean_env())
    assert done.returncode == 0
    with open(f"{place}/record") as f:
        record = json.load(f)
    assert record["recycled"]["same_number"]
    assert record["own"]["op"] == "welcome"
    for answer in record["recycled"]["answer"], record["other_user"]:
        assert answer["op"] == "error" and "has ended, or become another user's" in answer["text"], record


def test_process_that_says_hello_in_a_loop_is_refused_and_others_are_not(place):
    """Each hello costs a look at its process, a division of the total and a record of the leases."""
    hello = b'{"op":"hello","version":1,"minimum":1,"demand":1}\n'
    flood = ("import os,socket,sys,json\ndef once():\n with socket.socket(socket.AF_UNIX) as s:\n  s.connect(sys.argv[1]);"
             f"s.sendall({hello!r});return json.loads(s.makefile().readline())\n"
             "print(json.dumps([once() for _ in range(200)]))")
    with daemon(place, "--total", "100M") as d:
        done = subprocess.run(["/usr/bin/python3", "-c", flood, d.socket], capture_output=True, text=True, timeout=harness.HANG_S)
        answers = json.loads(done.stdout)
        welcome = [answer["op"] == "welcome" for answer in answers]
        assert all(welcome[:10]) and not all(welcome), welcome
        assert all("one after the other" in answer["text"] for answer in answers if answer["op"] != "welcome")
        with d.dial() as s:
            s.sendall(hello)
            assert json.loads(s.makefile().readline())["op"] == "welcome"


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
                               dial, d.socket], capture_output=True, text=True, timeout=harness.HANG_S)
        assert "too many connections" in done.stdout or "Broken pipe" in done.stderr or "reset" in done.stderr, done
        assert d.answers()  # the daemon's own user is not held up
        # Nor does it help to start many processes that say hello and hang up: they keep their place while they live.
        hello = ("import os,socket,sys,time\npids=[]\nfor i in range(5):\n r,w=os.pipe();pids.append(os.fork())\n"
                 " if not pids[-1]:\n  s=socket.socket(socket.AF_UNIX);s.connect(sys.argv[1]);"
                 "s.sendall(b'{\"op\":\"hello\",\"version\":1}\\n');os.write(w,s.recv(99));s.close();time.sleep(20)\n"
                 " print(os.read(r,99).decode().splitlines()[0])\nfor p in pids: os.kill(p,9)\n")
        done = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3", "-c",
                               hello, d.socket], capture_output=True, text=True, timeout=harness.HANG_S)
        assert ["welcome" in line for line in done.stdout.splitlines()] == [True] * 3 + [False] * 2, done
        assert done.stdout.count("too many processes") == 2, done
