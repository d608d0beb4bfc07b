"""What may change while programs run: swapnetd, by one of another version; the clock; and time itself, for one that is stopped."""
import contextlib
import itertools
import os
import signal
import socket
import time

import pytest

import harness
from daemons import Daemon, dnns, leased, plain_bits, stop, wait_for
from harness import MIB
from jumping_clock import DAY, Clock, needs_faketime

pytestmark = [pytest.mark.usefixtures("torch113"), pytest.mark.slow]
TOTAL = 120 * MIB
RESTARTS = int(os.environ.get("SWAPNET_TEST_POINTS", "24"))


class Versions(Daemon):
    """One of the versions in turn, from start to start."""
    said = None

    def env(self, **extra):
        preload = {"LD_PRELOAD": str(harness.other_version()), "OTHER_VERSION": self.said} if self.said else {}
        return super().env(**preload | extra)


def registered(d, running):
    """All of them have leases, of what they use, within the total."""
    def are():
        there = d.list()
        return all(there.get(dnn.pid, {}).get("state") == "running" for dnn in running)
    wait_for(are, why="they do not register")
    assert leased(d.ask({"op": "list"})) <= TOTAL
    for dnn in running:
        wait_for(lambda: (now := dnn.stats())["resident_bytes"] <= now["budget_bytes"], why="it keeps more than its budget")


@contextlib.contextmanager
def two_running(d, place):
    """Two programs, each with its number of layers, that compute and have leases."""
    with dnns() as make:
        layers = {make(place, 16): 16, make(place, 12): 12}
        for dnn in layers:
            dnn.goes_on(2)
        registered(d, layers)
        yield layers


def assert_speaks(d, version):
    """It is what the test takes it for."""
    with d.dial() as s:
        s.sendall(b'{"op":"hello","version":1,"name":"x","minimum":1,"demand":1,"urgency":7}\n')
        lines = s.makefile()
        assert f'"version":{ {"newer": 2, None: 1, "older": 0}[version] }' in lines.readline()
        told = [lines.readline() for _ in range(2 if version == "newer" else 1)]
        assert '"op":"lease"' in told[-1] and (version == "newer") == ('"color"' in told[-1]) == ("dance" in told[0]), told
        assert d.list()[os.getpid()]["urgency"] == (1 if version == "older" else 7)
        s.sendall(b'{"op":"bye"}\n')


def test_daemons_of_other_versions_in_turn(place):
    """Each is killed, or ends. $SWAPNET_TEST_POINTS restarts, 24 without that variable."""
    d = Versions(place, "--total", "120M")
    versions = itertools.cycle(("newer", None, "older", "newer", "older", None))
    try:
        with two_running(d, place) as running:
            for restart, version in zip(range(RESTARTS), versions):
                d.process.send_signal(signal.SIGKILL if restart % 2 else signal.SIGTERM)
                d.process.wait(harness.HANG_S)
                d.process.stderr.close()
                d.said = version
                d.start()
                assert_speaks(d, version)
                registered(d, running)
                for dnn in running:
                    dnn.goes_on(1)
            for dnn, layers in running.items():
                bits, err = dnn.end()
                assert bits == plain_bits(layers)
                assert not [line for line in err.splitlines() if "swapnetd: " in line], err
        print(f"{RESTARTS} restarts of three versions")
    finally:
        d.kill()


# Seconds from the real time: further and further, back behind where a program began, and back to what is right.
JUMPS = [0, 3600, -3600, 10, -10, DAY, -DAY, 3650 * DAY, -3650 * DAY, 0.4, -0.4, 0]
CLOCKS_DRIFT_S = 0.1  # less than any of them: as much as the real time may be corrected while a test runs


class Jumping(Daemon):
    def __init__(self, clock, *args):
        self.clock = clock
        super().__init__(*args)

    def env(self, **extra):
        return super().env(**self.clock.env() | extra)


def assert_clock_is(read, seconds):
    """So far from the real time: what the program read lies between two times of a clock that nobody sets."""
    before, clock, after = read
    real = time.time() - time.monotonic()
    assert before + real + seconds - CLOCKS_DRIFT_S < clock < after + real + seconds + CLOCKS_DRIFT_S, (
        "the clock did not jump", clock - real - before, seconds)


@needs_faketime
def test_the_clock_jumps(place, disk):
    """Under swapnetd and its programs, of which one loads a checkpoint while the clock is ten years behind the files' times."""
    clock = Clock(disk)
    d = Jumping(clock, place, "--total", "120M")
    try:
        with dnns() as make:
            def begin(layers, *more):
                return make(place, layers, *more, **clock.env(str(harness.LIBRARY)))
            running = {begin(16): 16, begin(12, "600", f"{disk}/weights.pt"): 12}
            for dnn in running:
                dnn.goes_on(2)
            for seconds in JUMPS:
                clock.set(seconds)
                for dnn in running:
                    dnn.goes_on(2)
                    assert_clock_is(dnn.state()["clock"], seconds)
                if seconds == -3650 * DAY:
                    running[begin(12, "600", f"{disk}/weights.pt")] = 12
                registered(d, running)
            # A daemon that starts in another year than the one before finds whose leases there were.
            d.kill()
            clock.set(-800 * DAY)
            d.start()
            registered(d, running)
            for dnn, layers in running.items():
                assert dnn.end()[0] == plain_bits(layers)
        print(f"{len(JUMPS) + 1} jumps")
    finally:
        d.kill()


def test_stopped_for_ten_seconds(place):
    """A program, the daemon, and all of them, as when a machine is suspended: then they go on."""
    d = Daemon(place, "--total", "120M")
    try:
        with two_running(d, place) as running:
            for stopped in [next(iter(running)).pid], [d.process.pid], [d.process.pid, *(dnn.pid for dnn in running)]:
                for pid in stopped:
                    stop(pid)
                try:
                    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as s:  # something waits for them meanwhile
                        s.settimeout(1)
                        s.connect(d.socket)
                        s.sendall(b'{"op":"total","budget":%d}\n' % (TOTAL // 2))
                    for dnn in running:
                        if dnn.pid not in stopped:
                            dnn.goes_on(2)
                    time.sleep(10)
                finally:
                    for pid in stopped:
                        os.kill(pid, signal.SIGCONT)
                registered(d, running)
                d.ask({"op": "total", "budget": TOTAL})
                for dnn in running:
                    dnn.goes_on(2)
                registered(d, running)
            for dnn, layers in running.items():
                assert dnn.end()[0] == plain_bits(layers)
    finally:
        d.kill()
