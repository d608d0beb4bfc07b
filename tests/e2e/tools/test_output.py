"""What swapnetctl prints: `top` on a terminal, and the daemon's answers for programs."""
import csv
import io
import json
import os
import socket
import subprocess
import termios

import pytest

import harness
from daemons import CTL, daemon, wait_for
from harness import MIB
from terminal import Terminal

REDRAWN = "\x1b[H\x1b[J"


@pytest.mark.parametrize("by_key", [True, False])
def test_top_on_a_terminal(place, by_key):
    """It begins at the upper left each time, shows what there is now, ends as it says, and leaves the terminal as it was."""
    with daemon(place, "--total", "64M") as d, Terminal(CTL, "top", "-d", "0.2", env=d.env(TERM="xterm")) as t:
        wait_for(lambda: t.read().count(REDRAWN) >= 3)
        first, *others = t.shown.split(REDRAWN)
        assert first == "" and all("Ctrl-C ends" in screen for screen in others[:2]), t.shown
        assert "of 64.0 MiB leased" in others[0] and "PID" in others[0] and "\x1b" not in "".join(others)
        assert d.ctl("total", "32M").returncode == 0
        wait_for(lambda: "of 32.0 MiB leased" in t.read().split(REDRAWN)[-1])
        if by_key:
            t.press(b"\x03")
        else:
            t.process.terminate()
        assert t.wait() == 0
        assert termios.tcgetattr(t.slave) == t.before
        assert "\x1b" not in "".join(t.read().split(REDRAWN)), "a mode of the terminal was changed"


def test_top_ends_by_itself(place):
    """What it could not find out stays on the screen with what it did."""
    with daemon(place, "--total", "64M") as d, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as wrong:
        wrong.bind(f"{place}/swapnet/900001.sock")
        with Terminal(CTL, "top", "-n", "2", "-d", "0.1", env=d.env()) as t:
            assert t.wait() == 0
            wait_for(lambda: t.read().count(REDRAWN) == 2 and "PID" in t.read().split(REDRAWN)[-1])
            assert all("process 900001 does not answer" in screen for screen in t.shown.split(REDRAWN)[1:]), t.shown
    with daemon(place, "--total", "64M") as d, Terminal(CTL, "top", "-o", "csv", env=d.env()) as t:
        assert t.wait() == 0 and t.read().startswith("pid,name,") and "\x1b" not in t.shown


def test_answers_for_programs(place):
    """set, total and drain as a table, JSON and CSV say the same."""
    pid, minimum = os.getpid(), 40 * MIB
    with daemon(place, "--total", "100M") as d, d.dial() as client:
        def both(*args):
            made = [d.ctl(*args, "-o", form) for form in ("json", "csv")]
            assert all(done.returncode == 0 and not done.stderr for done in made), made
            row, = csv.DictReader(io.StringIO(made[1].stdout))
            return json.loads(made[0].stdout), row

        client.sendall(json.dumps({"op": "hello", "version": 1, "name": "client", "minimum": minimum,
                                   "demand": 90 * MIB}).encode() + b"\n")
        wait_for(lambda: d.list().get(pid, {}).get("budget_bytes"))
        document, row = both("set", pid, "budget=50M", "urgency=0.25")
        assert (document["pid"], document["budget_bytes"], document["urgency"]) == (pid, 50 * MIB, 0.25)
        assert row == {"pid": str(pid), "budget_bytes": str(50 * MIB), "urgency": "0.25", "bound": ""}
        document, row = both("total", "80M")
        assert "keepers" not in document and row["keepers"] == "" and row["total_bytes"] == str(80 * MIB)
        document, row = both("total", "39M")
        keeper, = document["keepers"]
        assert (keeper["pid"], keeper["name"], keeper["away"]) == (pid, "client", False)
        assert row == {"total_bytes": str(39 * MIB), "leased_bytes": str(document["leased_bytes"]),
                       "least_bytes": str(document["least_bytes"]), "keepers": str(pid)}
        assert document["least_bytes"] == keeper["bytes"] >= minimum
        document, row = both("drain")
        assert (document["draining"], document["processes"]) == (True, 1) and row == {"draining": "true", "processes": "1"}
