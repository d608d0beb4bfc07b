"""Real programs under one swapnetd, or none: leases, exec, fork, the process's own socket, CPUs."""
import contextlib
import json
import os
import random
import signal
import subprocess
import threading
import time

import pytest

import harness
from daemons import CTL, TORCH, daemon, dnns, family, leased, plain_bits, wait_for
from harness import MIB

needs_torch = pytest.mark.usefixtures("torch113")  # which fails where there is none


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
            wait_for(lambda: d.knows(first.pid)["budget_bytes"] >= 100 * MIB, why="alone, it gets what it can use")
            second, third = make(place, 24), make(place, 16)
            for dnn in first, second, third:
                dnn.goes_on(8)
            leases = wait_for(lambda: len(now := d.list()) == 3 and all(p["state"] == "running" and p["budget_bytes"]
                                                                        for p in now.values()) and now)
            assert leases[first.pid]["urgency"] == 2 and leases[second.pid]["urgency"] == 1
            for dnn in first, second, third:
                wait_for(lambda: (now := dnn.stats())["budget_bytes"] <= total and now["resident_bytes"] <= now["budget_bytes"])

            def survivors():
                leases = d.list()
                return second.pid not in leases and leases[first.pid]["budget_bytes"] + leases[third.pid]["budget_bytes"]
            before = leases[first.pid]["budget_bytes"] + leases[third.pid]["budget_bytes"]
            os.kill(second.pid, signal.SIGKILL)
            wait_for(lambda: survivors() > before,  # whichever of them it helps more
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
        assert d.knows(dnn.pid)["budget_bytes"] <= 60 * MIB and dnn.stats()["budget_bytes"] <= 60 * MIB  # user's own limit
        assert dnn.stats()["daemon_socket"] == d.socket
        result = d.ctl("set", dnn.pid, "budget=100M")  # which it would not use, and nobody else could
        assert result.returncode == 1 and "60.0 MiB at most" in result.stderr and "nothing was changed" in result.stderr
        assert d.list()[dnn.pid]["set_budget_bytes"] is None and d.list()[dnn.pid]["budget_bytes"] <= 60 * MIB
        free = make(place, 24)
        free.goes_on(4)
        d.knows(free.pid)
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
            # One answer for both numbers: the daemon divides again after every pass.
            wait_for(lambda: (now := each.stats())["resident_bytes"] <= now["budget_bytes"])
            each.goes_on(2)
        document = json.loads(d.ctl("list", "-o", "json").stdout)
        assert document["total_bytes"] == 64 * MIB and document["policy"] == "minmax"
        assert "swapnetd: " in d.ctl("top").stdout and d.ctl("top", "-n", "2", "-d", "0.1").stdout.count("swapnetd: ") == 2
        assert d.ctl("list", "-o", "csv").stdout.count("\n") >= 3
        assert d.ctl("drain").returncode == 0
        assert dnn.end()[0] == free.end()[0] == plain_bits(24)
        assert d.process.wait(harness.HANG_S) == 0  # drained: those it served have ended


@needs_torch
def test_program_has_the_name_it_was_given(place):
    """What a user calls a program, where all are python3."""
    with dnns() as make:
        camera = make(place, 8, SWAPNET_NAME="camera-1", SWAPNET_BUDGET="30M")
        camera.goes_on(1)
        with daemon(place, "--total", "200M") as d:
            maps, other = make(place, 8, SWAPNET_NAME="maps"), make(place, 8)
            for dnn in maps, other:
                dnn.goes_on(1)
            assert d.knows(maps.pid)["name"] == "maps" and d.knows(other.pid)["name"].startswith("python3")
            shown = {p["pid"]: p["name"] for p in json.loads(d.ctl("list", "-o", "json").stdout)["processes"]}
            assert (shown[camera.pid], shown[maps.pid]) == ("camera-1", "maps")
            assert " maps " in d.ctl("top").stdout
            assert d.ctl("set", "maps", "urgency=4").returncode == 0 and d.list()[maps.pid]["urgency"] == 4
            assert d.ctl("set", "camera-1", "budget=20M").returncode == 0  # which the daemon does not have
            assert camera.stats()["budget_bytes"] == 20 * MIB
            assert "0 processes are called 'map'" in d.ctl("set", "map", "urgency=4").stderr
            assert d.ask({"op": "set", "name": "maps", "urgency": 5})["pid"] == maps.pid
            for dnn in camera, maps, other:
                assert dnn.end()[0] == plain_bits(8)


@needs_torch
def test_newcomer_without_its_daemon(place):
    """Invariant 12: its minimum, until the configured daemon answers."""
    with dnns() as make:
        path = f"{place}/swapnet/swapnetd.sock"
        dnn = make(place, 16, SWAPNET_DAEMON=path, SWAPNET_BUDGET="60M")
        dnn.goes_on(2)
        now = dnn.stats()
        assert now["budget_bytes"] == 8 * MIB and now["resident_bytes"] <= 8 * MIB, now
        with daemon(place, "--total", "200M") as d:
            wait_for(lambda: dnn.stats()["budget_bytes"] > 40 * MIB)
            assert dnn.pid in d.list()
            bits, err = dnn.end()
        assert bits == plain_bits(16)
        assert "no swapnetd answers" in err and "No such file" in err and err.count("swapnet:") == 1


@needs_torch
def test_auto_without_a_daemon(place):
    with dnns() as make:
        dnn = make(place, 16, SWAPNET_BUDGET="30M")
        dnn.goes_on(2)
        now = dnn.stats()
        assert now["budget_bytes"] == 30 * MIB and now["daemon_socket"] is None
        assert dnn.end() == (plain_bits(16), "")
    with dnns() as make:  # neither a budget nor a daemon: as without swapnet
        dnn = make(place, 16)
        dnn.goes_on(2)
        assert "SWAPNET_BUDGET is not set" in dnn.end()[1]


@needs_torch
def test_exec_gives_back(place):
    """The same process, but another program: the lease was the old one's."""
    with daemon(place, "--total", "200M") as d, family(place) as one:
        before = one.said()
        assert before["pid"] == one.pid
        wait_for(lambda: d.knows(one.pid)["budget_bytes"] > 64 * MIB)
        os.unlink(one.report)
        one.tell(f"exec {TORCH.python} {harness.program_file('family')} {one.report}")
        assert one.said() == before  # with a lease of its own
        assert d.knows(one.pid)["state"] in ("running", "shrinking") and leased(d.ask({"op": "list"})) <= 200 * MIB
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


@needs_torch
def test_grandchildren(place):
    """Each a process of its own to the daemon, with one lease; what a child becomes by exec is another program."""
    with daemon(place, "--total", "150M") as d, family(place) as one:
        before = one.said()
        one.tell("fork fork")
        made = [one.said(".child"), one.said(".child.child")]
        pids = [one.pid] + [each["pid"] for each in made]
        assert len(set(pids)) == 3 and all(each["bits"] == before["bits"] for each in made)
        wait_for(lambda: len(now := d.list()) == 3 and all(p["state"] == "running" for p in now.values()))
        listing = d.ask({"op": "list"})
        assert sorted(p["pid"] for p in listing["processes"]) == sorted(pids)
        assert all(p["budget_bytes"] >= 8 * MIB for p in listing["processes"]) and leased(listing) <= 150 * MIB
        for pid in pids[:0:-1]:
            os.kill(pid, signal.SIGKILL)
            wait_for(lambda: pid not in d.list())
        again = f"{one.report}.again"
        one.tell(f"fork exec {TORCH.python} {harness.program_file('family')} {again}")
        child = one.said(".again")
        assert child["bits"] == before["bits"] and child["pid"] not in pids
        wait_for(lambda: sorted(d.list()) == sorted([one.pid, child["pid"]]))
        wait_for(lambda: d.list()[child["pid"]]["budget_bytes"] >= 40 * MIB, why="it has no lease of its own")
        assert leased(d.ask({"op": "list"})) <= 150 * MIB


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
        assert "at least" in answer["error"] and answer["minimum_bytes"] >= 4 * MIB
        after = dnn.stats()
        assert (after["budget_bytes"], after["urgency"]) == (before["budget_bytes"], before["urgency"])
        command = "set", str(dnn.pid), "budget=64M", "urgency=2.5"
        result = subprocess.run([CTL, *command], capture_output=True, text=True,
                                env=harness.clean_env({"XDG_RUNTIME_DIR": place} | harness.patience(command)))
        assert result.returncode == 0 and "64.0 MiB" in result.stdout, result
        assert dnn.stats()["budget_bytes"] == 64 * MIB and dnn.stats()["urgency"] == 2.5
        assert dnn.end()[0] == plain_bits(24)


# ---- CPUs ----

@needs_torch
@pytest.mark.parametrize("binding", [{}, {"OMP_PROC_BIND": "true", "OMP_PLACES": "threads"}], ids=["free", "openmp"])
def test_cpus_bind_later_threads_too(place, binding):
    """Also of threads that start later, and where OpenMP had bound the program to others."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("one CPU")
    with daemon(place, "--total", "60M", "--cpus", f"{cpus[0]},{cpus[1]}") as d, dnns() as make:
        one = make(place, 10, **binding)
        one.goes_on(2)
        assert os.sched_getaffinity(one.pid) == {cpus[0], cpus[1]}
        two = make(place, 10, **binding)  # now they stream, with threads that were not there when the daemon bound them
        two.goes_on(2)
        assert os.sched_getaffinity(one.pid) | os.sched_getaffinity(two.pid) == {cpus[0], cpus[1]}
        assert not os.sched_getaffinity(one.pid) & os.sched_getaffinity(two.pid)
        wait_for(lambda: one.stats()["swap_ins"] > 0)
        for tid in os.listdir(f"/proc/{one.pid}/task"):
            with contextlib.suppress(ProcessLookupError):  # the thread has ended
                assert os.sched_getaffinity(int(tid)) == os.sched_getaffinity(one.pid)
        one.end()
        wait_for(lambda: os.sched_getaffinity(two.pid) == {cpus[0], cpus[1]})
        two.end()
        assert d.process.poll() is None
