"""What swapnetd promised, across its restarts."""
import contextlib
import json
import os

from harness import MIB
from test_daemon import Daemon, daemon, place, wait_for  # noqa: F401  (place is a fixture)


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


def test_restart_with_a_share_of_memory(place):
    """The total is a share of what there is together with what those on record hold, or it falls to their minimum."""
    d = Daemon(place, "--total", "50%")
    try:
        with Client(d, demand=1 << 50) as before:
            # It says that it holds all it gets, and takes nothing: half of that comes on top, and half of that.
            def grown():
                before.obey(1.2)
                return before.leases[-1] > 1.6 * before.leases[0]
            wait_for(grown)
            held = before.leases[-1]
            d.kill()
        d.start()
        assert d.ask({"op": "list"})["total_bytes"] > 0.9 * held
        with Client(d, demand=1 << 50, lease=held, resident=held) as after:
            wait_for(lambda: d.list()[os.getpid()]["state"] == "running")
            after.obey(2.5)
            assert min(after.leases, default=held) > 0.9 * held, after.leases
    finally:
        d.kill()
