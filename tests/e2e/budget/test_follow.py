"""Budgets that follow memory: SWAPNET_BUDGET=auto, and SWAPNET_MEMORY for the whole process."""
import contextlib
import json
import os
import signal
import subprocess
import time

import pytest

import cgroup
import harness
import pressure
from daemons import CTL, daemon, dnns, family, leased, plain_bits, wait_for
from harness import MIB

needs_torch = pytest.mark.usefixtures("torch113")


def whole(pid):
    """Bytes of a process; pages of the pool, which are mapped twice, once."""
    with open(f"/proc/{pid}/smaps_rollup") as f:
        return sum(int(line.split()[1]) << 10 for line in f if line.startswith("Pss:"))


@needs_torch
@pytest.mark.slow
def test_whole_process(place):
    with dnns() as make:
        roomy = make(place, 16, SWAPNET_MEMORY="2G")
        roomy.goes_on(2)
        outside = 2048 * MIB - roomy.stats()["budget_bytes"]  # the interpreter, the libraries, and a little
        assert 50 * MIB < outside < 600 * MIB
        assert roomy.end() == (plain_bits(16), "")
        limit = outside + 60 * MIB
        dnn = make(place, 32, SWAPNET_MEMORY=str(limit))  # 128 MiB of weights
        dnn.goes_on(4)
        for _ in range(20):
            now = dnn.stats()
            assert now["resident_bytes"] <= now["budget_bytes"] <= 76 * MIB, now
            assert whole(dnn.pid) <= limit
            time.sleep(0.05)
        assert now["streamed_bytes"] > 0
        assert dnn.end() == (plain_bits(32), "")


@needs_torch
@pytest.mark.slow
def test_too_little_for_the_program_itself(place):
    with dnns() as make:
        dnn = make(place, 8, SWAPNET_MEMORY="16M")
        dnn.goes_on(2)
        assert dnn.stats()["budget_bytes"] == 8 * MIB
        bits, err = dnn.end()
        assert bits == plain_bits(8) and err.count("swapnet:") == 1 and "the program alone takes" in err


@needs_torch
def test_the_smaller_of_two(place):
    """Also below what a program has for which nobody asked."""
    with dnns() as make:
        dnn = make(place, 8, SWAPNET_MEMORY="2G", SWAPNET_BUDGET="6M")
        dnn.goes_on(2)
        assert dnn.stats()["budget_bytes"] == 6 * MIB
        assert dnn.end()[0] == plain_bits(8)


@needs_torch
def test_auto_budget_follows_free_memory(place):
    with open("/proc/meminfo") as f:
        total = int(f.readline().split()[1]) << 10
    with dnns() as make:
        dnn = make(place, 16, SWAPNET_BUDGET="auto")
        dnn.goes_on(2)
        first = dnn.stats()["budget_bytes"]
        assert 100 * MIB < first < total
        assert dnn.ask({"op": "set", "budget": 32 * MIB})["budget_bytes"] == 32 * MIB  # a user's word counts
        time.sleep(1)
        assert dnn.stats()["budget_bytes"] == 32 * MIB
        assert "error" not in dnn.ask({"op": "set", "budget": 0})
        wait_for(lambda: dnn.stats()["budget_bytes"] > 100 * MIB, why="and auto follows again")
        assert dnn.end() == (plain_bits(16), "")


@needs_torch
@pytest.mark.alone
def test_auto_in_a_moment_of_pressure(place, disk):
    """The kernel's trigger makes it fall at once; by its average nobody would have noticed."""
    if why := pressure.why_not_real():
        pytest.skip(why)
    told = pressure.Told(place, available=60 * MIB, percent=None)
    with dnns() as make:
        dnn = make(place, 16, enter=told.enter, SWAPNET_BUDGET="auto")  # 64 MiB of weights
        dnn.goes_on(2)

        def budget():
            return dnn.stats()["budget_bytes"]
        wait_for(lambda: budget() > 88 * MIB)  # 0.75 * (60 + 64)
        pressure.falls_in_a_moment(disk, lambda: budget() < 86 * MIB)
        assert dnn.end() == (plain_bits(16), "")


@needs_torch
@pytest.mark.slow
def test_auto_under_pressure(place):
    """The budget falls as long as a process waits for memory, and comes back."""
    if why := pressure.why_not():
        pytest.skip(why)
    told = pressure.Told(place, available=60 * MIB)
    with dnns() as make:
        dnn = make(place, 16, enter=told.enter, SWAPNET_BUDGET="auto")  # 64 MiB of weights
        dnn.goes_on(2)
        wait_for(lambda: dnn.stats()["budget_bytes"] > 64 * MIB)
        told.say(available=60 * MIB, percent=40)
        wait_for(lambda: (now := dnn.stats())["resident_bytes"] <= now["budget_bytes"] < 50 * MIB, why="nothing is given back")
        told.say(available=60 * MIB)
        lowest = min(dnn.stats()["budget_bytes"] for _ in range(100))
        wait_for(lambda: dnn.stats()["budget_bytes"] > lowest + 8 * MIB, why="it never recovers")
        assert dnn.end() == (plain_bits(16), "")


def pressures(pid):
    """Descriptors of a process that tell it of memory pressure."""
    found = 0
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed by now
            found += "pressure" in os.readlink(f"/proc/{pid}/fd/{name}")
    return found


@needs_torch
def test_child_follows_for_itself(place):
    if why := pressure.no_triggers():
        pytest.skip(why)
    with family(place, SWAPNET_BUDGET="auto") as one:
        one.said()
        assert pressures(one.pid) == 1, "it follows"
        one.tell("fork")
        child = one.said(".child")["pid"]
        try:
            wait_for(lambda: pressures(child), why="the child follows, too")
            assert pressures(child) == 1, "it keeps its parent's"
        finally:
            os.kill(child, signal.SIGKILL)


@needs_torch
def test_growth_outside_tensors_is_given_back(place):
    """What the program takes besides is given back by the tensors."""
    code = ("import sys, time, torch\n"
            "w = [torch.ones(1 << 20) for _ in range(40)]\n"
            "x = bytearray(b'x' * (200 << 20))\n"
            "print(flush=True); sys.stdin.readline()\n"
            "assert all((v == 1).all() for v in w)\n")
    with harness.disk_dir() as directory:
        env = {"LD_PRELOAD": str(harness.LIBRARY), "SWAPNET_STORE": directory, "XDG_RUNTIME_DIR": place}
        command = [CTL, "run", "--memory", "500M", "--library", harness.LIBRARY, harness.TORCH113.python, "-c", code]
        process = subprocess.Popen([str(part) for part in command], env=harness.clean_env(env), stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdout.readline()
        wait_for(lambda: whole(process.pid) <= 500 * MIB)
        err = process.communicate(b"\n", timeout=harness.HANG_S)[1].decode()
        assert process.returncode == 0 and err == "", err


@needs_torch
def test_under_a_daemon(place):
    """What memory there is, is the most that a process takes of its lease; the lease is the daemon's."""
    with daemon(place, "--total", "100M") as d, dnns() as make:
        one = make(place, 16, SWAPNET_BUDGET="auto")
        one.goes_on(2)
        wait_for(lambda: d.knows(one.pid)["budget_bytes"] > 64 * MIB)
        two = make(place, 16, SWAPNET_MEMORY="16M")  # which the interpreter alone exceeds: the least there is
        two.goes_on(2)
        wait_for(lambda: two.stats()["budget_bytes"] == 8 * MIB and d.knows(two.pid)["budget_bytes"] == 8 * MIB)
        assert leased(d.ask({"op": "list"})) <= 100 * MIB
        wait_for(lambda: one.stats()["budget_bytes"] > 64 * MIB, why="what the other one does not take is its own")
        assert one.end() == (plain_bits(16), "")
        bits, err = two.end()
        assert bits == plain_bits(16) and err.count("swapnet:") == 1 and "the program alone takes" in err


# ---- as the kernel sees it ----

def in_cgroup(limit=None, options=(), **env):
    """(usage, record) of six passes of a deep MLP, in a cgroup of its own."""
    with harness.disk_dir() as where, cgroup.Group("follow") as group:
        if limit:
            group.limit(limit)
        command = [harness.TORCH113.python, harness.program_file("infer"), where / "record", "mlp-deep", "6"]
        if options:
            command = [CTL, "run", *options, "--library", harness.LIBRARY, "--", *command]
        env = {"SWAPNET_STORE": str(where), "XDG_RUNTIME_DIR": str(where), "SWAPNET_STATS": str(where / "stats")} | env
        usage = group.run(command, env=harness.clean_env(env if options else {}), cwd=where, timeout=harness.HANG_S)
        record = json.loads((where / "record").read_text()) if usage.rc == 0 else None
        stats = json.loads((where / "stats").read_text()) if usage.rc == 0 and options else None
    return usage, record, stats


@needs_torch
@pytest.mark.slow
def test_lives_in_a_hard_limit():
    """Where the plain program is killed: --memory, which says how much there is, and auto, which finds it out."""
    if why := cgroup.why_not():
        pytest.skip(why)
    roomy, expected, _ = in_cgroup()
    assert roomy.rc == 0, roomy
    limit = roomy.peak_bytes - 56 * MIB
    killed, _, _ = in_cgroup(limit)
    assert killed.oom_kills > 0 and killed.rc != 0, "it fits: the rest would prove nothing"
    for options, env in ((("--memory", limit - 24 * MIB), {}), (("--verbose",), {"SWAPNET_BUDGET": "auto"})):
        usage, record, stats = in_cgroup(limit, options, **env)
        assert usage.rc == 0 and usage.oom_kills == 0, usage
        assert record["values"] == expected["values"]
        assert stats["streamed_bytes"] > 0 and stats["over_budget_bytes"] == 0, stats


NEIGHBOUR = """
import sys, time
held = []
for _ in range(10):
    held.append(bytearray(b"x" * (4 << 20)))
    time.sleep(0.5)
print("has it", flush=True)
sys.stdin.readline()
"""


def unreclaimable(group):
    """Bytes that no limit can take away."""
    return sum(group.usage()[:3])


@needs_torch
@pytest.mark.slow
def test_memory_that_becomes_less(place):
    """In a cgroup whose limit comes down, and in which another process takes more and more: auto gives way before the kernel has
    to kill, and takes what is free again."""
    if why := cgroup.why_not():
        pytest.skip(why)
    with cgroup.Group("less") as group, dnns() as make:
        group.limit(1 << 30)
        dnn = make(place, 32, enter=group.enter, SWAPNET_BUDGET="auto")  # 128 MiB of weights
        dnn.goes_on(3)
        roomy = dnn.stats()
        assert roomy["budget_bytes"] > 128 * MIB and roomy["streamed_bytes"] == 0, roomy
        end = time.monotonic() + 60
        while (budget := dnn.stats()["budget_bytes"]) > 96 * MIB:
            assert time.monotonic() < end, budget
            group.limit(unreclaimable(group) + 16 * MIB)
            dnn.goes_on(1)
            time.sleep(0.5)
        group.limit(unreclaimable(group) + 48 * MIB)
        time.sleep(4)
        before = dnn.stats()["budget_bytes"]
        other = subprocess.Popen(["/usr/bin/python3", "-c", NEIGHBOUR], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 preexec_fn=group.enter)
        assert other.stdout.readline() == b"has it\n"
        wait_for(lambda: (now := dnn.stats())["resident_bytes"] <= now["budget_bytes"] < before - 20 * MIB)
        dnn.goes_on(2)
        other.communicate(b"\n")
        wait_for(lambda: dnn.stats()["budget_bytes"] > before - 8 * MIB, why="what is free again is not taken")
        assert dnn.stats()["streamed_bytes"] > 0 and (other.returncode, group.oom_kills()) == (0, 0)
        assert dnn.end() == (plain_bits(32), "")
