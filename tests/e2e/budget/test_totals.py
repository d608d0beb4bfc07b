"""swapnetd's total when it becomes another one: programs follow it, and come to no harm."""
import json
import os
import socket
import struct
import time

import pytest

import harness
import pressure
from daemons import Daemon, daemon, dnns, leased, plain_bits, wait_for
from harness import MIB

pytestmark = pytest.mark.usefixtures("torch113")


def hear_hellos(path, count):
    """By process: the reports of this many that connect again, to a daemon that then disconnects."""
    said = {}
    os.unlink(path)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        listening.settimeout(harness.HANG_S)
        while len(said) < count:
            connection, _ = listening.accept()
            with connection, connection.makefile() as lines:
                connection.settimeout(harness.HANG_S)
                hello = json.loads(lines.readline())
                ucred = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
                said[struct.unpack("3i", ucred)[0]] = hello
    return said


@pytest.mark.timed
def test_restart_with_less_and_no_record(place):
    """A new daemon that knows nothing, and has less to give, learns from the programs what they have; that
    this is too much is settled within a second."""
    d = Daemon(place, "--total", "150M")
    try:
        with dnns() as make:
            running = [make(place, 16), make(place, 12)]  # 64 and 48 MiB of weights
            for dnn in running:
                dnn.goes_on(3)
                wait_for(lambda: (now := d.knows(dnn.pid))["state"] == "running" and now["budget_bytes"] > 48 * MIB)
            d.kill()
            os.unlink(f"{place}/swapnet/swapnetd.leases")
            last = {dnn.pid: dnn.stats()["budget_bytes"] for dnn in running}
            said = hear_hellos(d.socket, 2)
            total = 60 * MIB
            assert {pid: hello["lease"] for pid, hello in said.items()} == last and sum(last.values()) > total
            assert all(0 < hello["resident"] <= hello["lease"] for hello in said.values()), said
            d.args = ("--total", "60M")
            d.start()
            wait_for(lambda: len(d.list()) == 2, why="they do not register again")
            begin = time.monotonic()
            wait_for(lambda: leased(d.ask({"op": "list"})) <= total, why="it is never settled")
            took = time.monotonic() - begin
            harness.in_time(took < harness.PATIENCE, f"settled after {took:.1f} s")
            wait_for(lambda: all(p["state"] == "running" for p in d.list().values()))
            assert leased(d.ask({"op": "list"})) <= total
            for dnn, layers in zip(running, (16, 12)):
                dnn.goes_on(2)
                wait_for(lambda: (now := dnn.stats())["resident_bytes"] <= now["budget_bytes"] == d.list()[dnn.pid]["budget_bytes"])
                bits, err = dnn.end()
                assert bits == plain_bits(layers) and err.count("swapnet:") == err.count("going on under its last lease") <= 1, err
    finally:
        d.kill()


@pytest.mark.alone
def test_share_in_a_moment_of_pressure(place, disk):
    """The kernel's trigger makes it fall at once; by its average nobody would have noticed."""
    if why := pressure.why_not_real():
        pytest.skip(why)
    told = pressure.Told(place, available=100 * MIB, percent=None)
    with daemon(place, "--total", "80%", preexec_fn=told.enter) as d:
        def total():
            return d.ask({"op": "list"})["total_bytes"]
        assert total() == 80 * MIB
        pressure.falls_in_a_moment(disk, lambda: total() <= 76 * MIB)
        wait_for(lambda: total() > 76 * MIB, why="it never recovers")


@pytest.mark.slow
def test_share_under_pressure(place):
    """A share of memory falls while a process waits for memory, and when there is less; programs follow it, down and up."""
    if why := pressure.why_not():
        pytest.skip(why)
    told = pressure.Told(place, available=100 * MIB)
    with daemon(place, "--total", "80%", preexec_fn=told.enter) as d, dnns() as make:
        def total():
            return d.ask({"op": "list"})["total_bytes"]
        dnn = make(place, 16)  # 64 MiB of weights
        dnn.goes_on(3)
        roomy = wait_for(lambda: dnn.stats()["budget_bytes"] > 64 * MIB and total() > 100 * MIB and total())
        assert roomy <= 0.8 * (100 + 90) * MIB
        for tight in ({"available": 100 * MIB, "percent": 40}, {"available": MIB}):
            told.say(**tight)
            wait_for(lambda: total() < 50 * MIB, why=f"the total stays {total() >> 20} MiB")
            wait_for(lambda: dnn.stats()["resident_bytes"] <= dnn.stats()["budget_bytes"] < 50 * MIB, why="the program keeps it")
            assert leased(d.ask({"op": "list"})) <= total()
            dnn.goes_on(2)
            told.say(available=100 * MIB)
            wait_for(lambda: total() > 100 * MIB and dnn.stats()["budget_bytes"] > 64 * MIB, why="it never recovers")
        assert dnn.end() == (plain_bits(16), "")
