"""What swapnetd promised, across its death and restarts, and with a hundred processes."""
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import time

import pytest

import harness
from daemons import DAEMON, Daemon, daemon, dnns, fork_dnn, leased, plain_bits, stop, wait_for
from harness import MIB

needs_torch = pytest.mark.usefixtures("torch113")  # which fails where there is none


# ---- a daemon that dies ----

def within_its_lease(stats):
    return stats["state"] != "running" or stats["resident_bytes"] <= stats["budget_bytes"]


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
                # Nobody hears of another lease now. One that was just heard of is kept from the next operators on.
                for dnn in running:
                    wait_for(lambda: within_its_lease(dnn.stats()), why=f"{dnn.pid} keeps its lease")
                for dnn in running:
                    dnn.goes_on(1)
                d.start()
                assert leased(d.ask({"op": "list"})) <= total
            for dnn in running:
                dnn.goes_on(3)
                wait_for(lambda: d.list().get(dnn.pid, {}).get("state") == "running", why="it registers again")
                wait_for(lambda: (now := dnn.stats())["resident_bytes"] <= now["budget_bytes"], why="it keeps more than its budget")
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


def killed_at(d, step, running):
    """The kind of the step at which it dies: of what its clients do by themselves, or are moved to when all is quiet."""
    preload = {"LD_PRELOAD": str(harness.die_at()), "DIE_AT": str(step)}
    d.process = subprocess.Popen([DAEMON, *map(str, d.args)], env=d.env(**preload), stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 60
    while d.process.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            d.process.wait(2)
        if d.process.returncode is None:
            with contextlib.suppress(OSError, ValueError):
                d.ask({"op": "set", "pid": running[step % len(running)].pid, "urgency": 0.5 + step % 5})
        assert time.monotonic() < end, f"step {step} is never reached"
    assert d.process.returncode == -signal.SIGKILL, d.process.stderr.read()
    with d.process.stderr as said:
        return said.read().split()[-1]


@needs_torch
@pytest.mark.slow
def test_daemon_killed_at_each_step(place):
    """Of the protocol with three clients: before it hears, says or notes what comes next."""
    total, kinds = 120 * MIB, []
    d = Daemon(place, "--total", "120M")
    try:
        with dnns() as make:
            running = [make(place, layers) for layers in (16, 12, 20)]
            for dnn in running:
                dnn.goes_on(3)
            d.kill()
            for step in range(1, 31):
                kinds.append(killed_at(d, step, running))
                last = {dnn.pid: dnn.stats() for dnn in running}
                assert sum(s["budget_bytes"] for s in last.values()) <= total, (step, kinds)
                for dnn in running:
                    wait_for(lambda: within_its_lease(dnn.stats()), why=(step, kinds, dnn.pid))
                for dnn in running:
                    dnn.goes_on(1)
            assert set(kinds) == {"hears", "says", "notes"}, kinds
            d.start()
            assert leased(d.ask({"op": "list"})) <= total
            for dnn, layers in zip(running, (16, 12, 20)):
                wait_for(lambda: d.list().get(dnn.pid, {}).get("state") == "running", why="it registers again")
                assert dnn.end()[0] == plain_bits(layers)
    finally:
        d.kill()


@needs_torch
def test_a_cap_below_what_is_unasked(place):
    """A budget of its own below the 8 MiB that a program has until it hears of a lease: it counts then too, and when there
    is no daemon any more. One without has the 8."""
    with dnns() as make:
        with daemon(place, "--total", "200M") as d:
            stop(d.process.pid)
            dnn, free = make(place, 8, SWAPNET_BUDGET="5M"), make(place, 8)
            for each in dnn, free:
                each.goes_on(1)
            assert (dnn.stats()["budget_bytes"], free.stats()["budget_bytes"]) == (5 * MIB, 8 * MIB)
            d.process.send_signal(signal.SIGCONT)
            wait_for(lambda: d.list().get(dnn.pid, {}).get("state") == "running")
            dnn.goes_on(2)
            assert dnn.stats()["budget_bytes"] == d.list()[dnn.pid]["budget_bytes"] == 5 * MIB
        dnn.goes_on(2)
        assert dnn.stats()["budget_bytes"] == 5 * MIB
        assert dnn.end()[0] == plain_bits(8)


@needs_torch
def test_newcomer_before_the_next_daemon(place):
    """One that starts in the second in which the daemon is dead is as its others: the next one's."""
    d = Daemon(place, "--total", "200M")
    try:
        with dnns() as make:
            first = make(place, 16)
            first.goes_on(2)
            wait_for(lambda: d.knows(first.pid)["state"] == "running")
            d.kill()
            began = time.monotonic()
            second = make(place, 16, SWAPNET_BUDGET="60M")
            second.goes_on(1)
            budget = second.stats()["budget_bytes"]
            assert budget == 8 * MIB or time.monotonic() - began > 9, budget  # it waits for ten seconds
            assert d.ctl("run", "true").returncode == 0  # it will get a budget
            d.start()
            wait_for(lambda: d.list().get(second.pid, {}).get("budget_bytes", 0) > 40 * MIB, why="it does not register")
            assert leased(d.ask({"op": "list"})) <= 200 * MIB
            assert second.end() == (plain_bits(16), "")
    finally:
        d.kill()


@needs_torch
@pytest.mark.slow
def test_daemon_that_does_not_come_back(place):
    """Invariant 12: who has no lease keeps to its minimum as long as somebody else lives who has one; then it waits for ten
    seconds, not for ever. Should a daemon come after all, it is obeyed."""
    d = Daemon(place, "--total", "100M")
    holder = None
    try:
        with dnns() as make:
            holder = fork_dnn(d.socket, 1)
            wait_for(lambda: d.list().get(holder, {}).get("state") == "running")
            stop(holder)  # it would end when its connection does
            d.kill()
            begin = time.monotonic()
            limited, free = make(place, 12, SWAPNET_BUDGET="60M"), make(place, 12)
            for dnn in limited, free:
                dnn.goes_on(1)
            while time.monotonic() - begin < 25:
                assert all(dnn.stats()["budget_bytes"] == 8 * MIB for dnn in (limited, free))
                time.sleep(0.2)
            os.kill(holder, signal.SIGKILL)
            os.waitpid(holder, 0)
            holder = None
            wait_for(lambda: limited.stats()["budget_bytes"] == 60 * MIB and free.stats()["budget_bytes"] > 500 * MIB)
            d.start()
            wait_for(lambda: all(dnn.pid in d.list() and dnn.stats()["budget_bytes"] <= 80 * MIB for dnn in (limited, free)))
            wait_for(lambda: leased(d.ask({"op": "list"})) <= 100 * MIB)
            for dnn in limited, free:
                dnn.goes_on(1)
                bits, err = dnn.end()
                said = [line for line in err.splitlines() if line.startswith("swapnet:")]
                assert bits == plain_bits(12) and len(said) == 2, err
                assert "no program with a lease of it is left" in said[0] and "going on without" in said[1], err
                assert ("SWAPNET_BUDGET is not set" in err) == (dnn is free)
    finally:
        if holder:
            os.kill(holder, signal.SIGKILL)
            os.waitpid(holder, 0)
        d.kill()


@needs_torch
@pytest.mark.slow
def test_newcomer_while_it_drains(place):
    """It is told no, and has its minimum as long as the daemon is there, and its own budget some time after."""
    with daemon(place, "--total", "100M") as d, dnns() as make:
        with Client(d, demand=20 * MIB) as c:
            c.obey(0.5)
            assert d.ctl("drain").returncode == 0
            dnn = make(place, 12, SWAPNET_BUDGET="60M")
            dnn.goes_on(1)
            assert dnn.stats()["budget_bytes"] == 8 * MIB
            c.say({"op": "bye"})
        assert d.process.wait(harness.HANG_S) == 0
        wait_for(lambda: dnn.stats()["budget_bytes"] == 60 * MIB)
        bits, err = dnn.end()
        assert bits == plain_bits(12) and "draining" in err and "going on without" in err


@needs_torch
def test_restart_counts_what_it_finds(place):
    """Invariant 12: a process that cannot answer now has its lease all the same."""
    d = Daemon(place, "--total", "200M")
    try:
        with dnns() as make:
            dnn = make(place, 20)
            dnn.goes_on(3)
            held = wait_for(lambda: (p := d.knows(dnn.pid))["state"] == "running" and p["budget_bytes"])
            stop(dnn.pid)
            d.kill()
            d.start()
            found = d.list()[dnn.pid]
            assert found["state"] == "away" and found["counted_bytes"] >= held
            with d.dial() as s:  # a newcomer gets what is left
                s.sendall(b'{"op":"hello","version":1,"name":"new","minimum":1048576,"demand":209715200}\n')
                wait_for(lambda: d.list().get(os.getpid(), {}).get("budget_bytes"))
                assert leased(d.ask({"op": "list"})) <= 200 * MIB
            os.kill(dnn.pid, signal.SIGCONT)
            wait_for(lambda: d.list()[dnn.pid]["state"] == "running")
            dnn.end()
    finally:
        d.kill()


def test_claim_after_a_crash_is_believed_up_to_memory_in_no_file(place, disk):
    """A client says after a crash what it held. Pages of a file that it mapped are no lease's."""
    code = ("import json,mmap,os,socket,sys\nf=open(sys.argv[2],'rb');m=mmap.mmap(f.fileno(),0,access=mmap.ACCESS_READ)\n"
            "assert not sum(m[i] for i in range(0,len(m),4096))\ns=socket.socket(socket.AF_UNIX);s.connect(sys.argv[1])\n"
            "s.sendall(b'{\"op\":\"hello\",\"version\":1,\"minimum\":1,\"demand\":1,\"lease\":268435456}\\n');"
            "s.recv(4096);print(flush=True);sys.stdin.read()\n")
    with open(f"{disk}/mapped", "wb") as f:
        f.truncate(256 * MIB)
    with daemon(place, "--total", "16M") as d:
        client = subprocess.Popen(["/usr/bin/python3", "-c", code, d.socket, f"{disk}/mapped"], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE)
        client.stdout.readline()
        counted = d.list()[client.pid]["counted_bytes"]
        client.communicate(b"")
        assert counted < 128 * MIB, counted


# ---- a hundred processes ----

def test_a_hundred_processes(place):
    total, chance, seed = 2000 * MIB, random.Random(3), 0
    with daemon(place, "--total", "2000M") as d:
        running = []
        try:
            for _ in range(60):
                while len(running) < 100:
                    seed += 1
                    running.append(fork_dnn(d.socket, seed))
                for _ in range(chance.randrange(4)):
                    dead = running.pop(chance.randrange(len(running)))
                    os.kill(dead, signal.SIGKILL)
                    os.waitpid(dead, 0)
                listing = d.ask({"op": "list"})
                assert leased(listing) == listing["leased_bytes"] <= total, listing
            # When it is quiet again, the last newcomers have said hello and the last of the dead have been noticed: the dead
            # have nothing, and everybody who lives has a lease.
            wait_for(lambda: sorted(there := d.list()) == sorted(running)
                     and all(p["state"] == "running" for p in there.values()))
            assert all(p["budget_bytes"] >= p["minimum_bytes"] for p in d.list().values())
        finally:
            for pid in running:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        wait_for(lambda: not d.list())
        assert seed > 120


# ---- what is on record ----

class Client:
    """This test as a process that swapnetd serves: it obeys at once, and says that it uses all that it gets."""

    def __init__(self, d, **hello):
        self.connection = d.dial()
        self.lines = self.connection.makefile()
        self.leases = []
        self.say({"op": "hello", "version": 1, "name": "client", "minimum": MIB} | hello)
        assert json.loads(self.lines.readline())["op"] == "welcome"

    def say(self, message):
        self.connection.sendall(json.dumps(message).encode() + b"\n")

    def obey(self, seconds):
        """Confirms what comes, until nothing has come for so long."""
        self.connection.settimeout(seconds)
        with contextlib.suppress(TimeoutError):
            while True:
                message = json.loads(self.lines.readline())
                self.leases.append(message["budget"])
                self.say({"op": "ack", "seq": message["seq"], "resident": message["budget"]})
        self.lines = self.connection.makefile()  # one that timed out reads no more

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.lines.close()
        self.connection.close()


@pytest.mark.alone
def test_a_share_of_memory_counts_what_is_there(place):
    """One that says that it holds all it gets, and takes nothing, makes the total no larger: neither while it says so, nor
    in the daemon that follows, which finds it on record; nor does the total fall when nobody has come back yet."""
    seen = []

    def share():
        with open("/proc/meminfo") as f:
            seen.append(next(int(line.split()[1]) << 10 for line in f if line.startswith("MemAvailable:")))
        total = d.ask({"op": "list"})["total_bytes"]
        assert total < first * 1.3 * max(seen), "more than its share of what there ever was"
        return total / seen[-1]

    def is_kept():
        # What others take of this machine's memory, or press for, makes the total smaller, for as long as they do.
        return wait_for(lambda: first * 0.7 < share() < first * 1.3, why="the total is no longer its share of what there is")
    first = 1  # a limit of the container's may be tighter than half
    d = Daemon(place, "--total", "50%")
    try:
        first = share()
        with Client(d, demand=1 << 50) as before:
            before.obey(1.2)
            before.obey(1.2)  # half of that would come on top, and half of that
            said = d.list()[os.getpid()]
            assert said["counted_bytes"] > 2 * said["resident_bytes"], said
            is_kept()
            d.kill()
        d.start()
        is_kept()
        with Client(d, demand=1 << 50, lease=said["counted_bytes"], resident=said["counted_bytes"]) as after:
            wait_for(lambda: d.list()[os.getpid()]["state"] == "running")
            after.obey(1.2)
            after.obey(1.2)
            is_kept()
    finally:
        d.kill()


def test_record_that_cannot_be_written_now(place):
    """Tried again, and not only when something changes."""
    in_the_way = f"{place}/swapnet/swapnetd.leases.new"
    os.mkdir(in_the_way)
    with daemon(place, "--total", "100M") as d, Client(d, demand=20 * MIB):
        wait_for(lambda: d.list()[os.getpid()]["state"] == "running")
        os.rmdir(in_the_way)

        def on_record():
            with contextlib.suppress(FileNotFoundError), open(f"{place}/swapnet/swapnetd.leases") as f:
                return [entry["lease_bytes"] for entry in json.load(f)["leases"]]
        assert wait_for(on_record) == [20 * MIB]
        said = d.end()
        assert said.count("cannot write") == 1 and "on record again" in said, said


def test_a_total_below_what_is_needed(place):
    """Is in force at once: programs keep what they need, and nobody gets any more before enough of them have ended."""
    with daemon(place, "--total", "100M") as d:
        pid = os.fork()
        if not pid:
            with contextlib.suppress(BaseException), Client(d, name="other", minimum=10 * MIB, demand=30 * MIB) as c:
                c.obey(60)
            os._exit(0)
        try:
            with Client(d, minimum=40 * MIB, demand=60 * MIB) as c:
                def settles(leased):
                    """It obeys until so much is leased: the daemon and the other one may take their time."""
                    end = time.monotonic() + 30
                    while (listing := d.ask({"op": "list"}))["leased_bytes"] != leased and time.monotonic() < end:
                        c.obey(0.5)
                    assert listing["leased_bytes"] == leased, listing
                    return listing
                settles(90 * MIB)
                result = d.ctl("total", "39M")
                assert result.returncode == 0 and "giving back" in result.stdout, result
                table = [line.split() for line in result.stdout.splitlines()[2:]]
                assert table == [[str(os.getpid()), "client", "40.0", "MiB"], [str(pid), "other", "10.0", "MiB"]], result
                assert settles(50 * MIB)["total_bytes"] == 39 * MIB
                c.say({"op": "update", "minimum": 8 * MIB})  # it can do with less by now
                settles(39 * MIB)
                result = d.ctl("total", "18M")
                assert result.returncode == 0 and "above" not in result.stdout, result
                assert "above" in d.ctl("total", "17M").stdout and "8 MiB" in d.ctl("total", "7M").stderr
                settles(18 * MIB)
                os.kill(pid, signal.SIGKILL)
                wait_for(lambda: pid not in d.list())
                settles(17 * MIB)
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def test_what_was_set_outlives_the_daemon(place):
    d = Daemon(place, "--total", "100M")
    try:
        with Client(d, demand=20 * MIB):
            wait_for(lambda: d.list()[os.getpid()]["budget_bytes"])
            assert d.ctl("total", "64M").returncode == 0 and d.ctl("drain").returncode == 0
            d.kill()
            d.start()
            listing = d.ask({"op": "list"})
            assert (listing["total_bytes"], listing["draining"]) == (64 * MIB, True), listing
            assert "total 100.0 MiB" in d.ctl("total", "auto").stdout
            d.kill()
            d.start()
            assert d.ask({"op": "list"})["total_bytes"] == 100 * MIB
            assert d.ctl("total", "64M").returncode == 0
            d.kill()
            d.args = ("--total", "80M")  # which says that there is another one
            d.start()
            assert d.ask({"op": "list"})["total_bytes"] == 80 * MIB
    finally:
        d.kill()


def test_newcomers_while_others_leave(place):
    """In one round of the daemon's: some say bye and die, others say hello. Nobody is taken for one of the dead."""
    hello = b'{"op":"hello","version":1,"name":"n","minimum":1048576,"demand":1048576}\n'

    def play(path, say, done):
        """Connects, says the first part, waits for the word, says the second and stays, or ends."""
        pid = os.fork()
        if not pid:
            with contextlib.suppress(BaseException):
                s = socket.socket(socket.AF_UNIX)
                s.connect(path)
                for part in say:
                    s.sendall(part)
                    done.send(b".")
                    done.recv(1)
            os._exit(0)
        return pid
    with daemon(place, "--total", "1000M") as d:
        def start(count, say):
            pairs = [socket.socketpair() for _ in range(count)]
            pids = [play(d.socket, say, theirs) for _, theirs in pairs]
            for ours, theirs in pairs:
                theirs.close()
                ours.recv(1)
            return pids, [ours for ours, _ in pairs]
        leaving, tell_leaving = start(20, [hello, b'{"op":"bye"}\n'])
        coming, tell_coming = start(20, [b"", hello])
        try:
            wait_for(lambda: len(d.list()) == 20)
            stop(d.process.pid)
            for ours in tell_leaving + tell_coming:  # to say the second part
                ours.send(b".")
                ours.recv(1)
            for ours in tell_leaving:  # to end
                ours.send(b".")
            for pid in leaving:
                os.waitpid(pid, 0)
            os.kill(d.process.pid, signal.SIGCONT)
            wait_for(lambda: sorted(d.list()) == sorted(coming), why="a newcomer was lost")
            assert all(p["state"] == "running" for p in d.list().values())
        finally:
            os.kill(d.process.pid, signal.SIGCONT)
            for pid in coming:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            for ours in tell_leaving + tell_coming:
                ours.close()


def test_who_waits_is_served(place):
    """One that needs more than is left is passed by while it could not be served anyway, and then by nobody any more."""
    def hold(d, minimum):
        pid = os.fork()
        if not pid:
            with contextlib.suppress(BaseException), Client(d, minimum=minimum, demand=minimum) as c:
                c.obey(60)
            os._exit(0)
        wait_for(lambda: pid in d.list())
        return pid

    def end(pid):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    with daemon(place, "--total", "100M") as d:
        held = []
        try:
            held = [hold(d, 60 * MIB), hold(d, 90 * MIB), hold(d, 20 * MIB)]
            wait_for(lambda: [d.list()[pid]["state"] for pid in held] == ["running", "waiting", "running"])
            end(held.pop(0))
            held.append(hold(d, 15 * MIB))
            wait_for(lambda: sorted(d.list()) == sorted(held))
            time.sleep(1.5)
            assert [d.list()[pid]["state"] for pid in held] == ["waiting", "running", "waiting"]
            end(held.pop(1))
            wait_for(lambda: [d.list()[pid]["state"] for pid in held] == ["running", "waiting"], why="it waits for ever")
        finally:
            for pid in held:
                end(pid)
