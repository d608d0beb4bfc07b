"""How much memory each server of masa_serving.py may have, so that what they are compared by is the same for all.

A server's base is the smallest limit of its cgroup within which it answers for the same networks with hardly any weights, and reads nothing
again: what a program was seen to take is more than it needs, and the rest would be room for weights. Libraries are at nobody's cost: whose
cgroup is charged for their pages is chance, as it is the one that touched them first."""
import contextlib
import ctypes
import json
import os
from pathlib import Path

import masa_jobs
from plan import MIB

# weights: each server has its own base, and the same room for weights and activations. whole: all have the same limit, in which the one with
# mapped weights would have that room.
TERMS = ("weights", "whole")
# Of the networks with hardly any weights.
HARDLY = 1e-4
# A base is found within so much, and is no larger.
STEP, MOST = 4 * MIB, 400 * MIB
# Rounds of requests that a server has to settle, and then may read no more than this in so many again.
SETTLE, AGAIN, READS = 3, 2, 1 * MIB
PATIENCE_S = 5
PROT_READ = MAP_SHARED = 1


class Pinned:
    """Files of which all pages stay in memory until this process ends."""

    def __init__(self):
        self.files = set()
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.mmap.restype = ctypes.c_void_p
        self._libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
        self._libc.mlock.argtypes = [ctypes.c_void_p, ctypes.c_size_t]

    def of(self, pids):
        """What these processes have mapped, but no models."""
        for pid in pids:
            for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
                words = line.split(None, 5)
                if len(words) > 5 and words[5].startswith("/") and not words[5].endswith((".weights", ".pt", ".swnstore")):
                    self._pin(words[5])

    def _pin(self, path):
        if path in self.files or not os.path.isfile(path):
            return
        self.files.add(path)
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size:
                at = self._libc.mmap(None, size, PROT_READ, MAP_SHARED, file.fileno(), 0)
                if self._libc.mlock(at, size):
                    raise OSError(ctypes.get_errno(), f"mlock {path}")


def smallest(is_enough, low, high, step):
    """The smallest limit that is enough, to within a step; high is."""
    while high - low > step:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def _settles(server, protocol, networks, image):
    """It answers, and then again without reading."""
    def rounds(count):
        for _ in range(count):
            for n in networks:
                row = masa_jobs.play(server.port, protocol, [masa_jobs.Job(0, (n,), 0)], [image], PATIENCE_S)[0]
                if row["status"] != 200:
                    return False
        return True
    if server.ended or not rounds(SETTLE):
        return False
    before = server.read_bytes()
    return rounds(AGAIN) and server.read_bytes() - before <= READS and not server.group.oom_kills()


class Bases:
    """{kind of server: bytes}, found where they are first asked for. place: of the networks with hardly any weights. keep: a file of
    earlier ones, for runs of the same build on the same machine."""

    def __init__(self, place, keep=None):
        self.place, self.keep, self.found = place, keep, {}
        if keep and keep.exists():
            self.found = json.loads(keep.read_text())
        self.pinned = Pinned()

    def pin(self, kinds):
        """The libraries of these servers."""
        for kind in kinds:
            with self._started(kind, None) as (server, _):
                self.pinned.of(server.processes())

    @contextlib.contextmanager
    def _started(self, kind, limit):
        server, protocol = self.place.launch(kind, limit, self.place.front + 32 * MIB, "-base")
        with contextlib.closing(server.group), server:
            yield server, protocol

    def of(self, kind):
        networks = ", ".join(n.name for n in self.place.networks)
        name = f"{kind} for {networks}{' on a machine with swap' if self.place.may_swap else ''}"
        if name not in self.found:
            image = (self.place.folder / "samples" / "0.in").read_bytes()

            def is_enough(limit):
                with self._started(kind, limit) as (server, protocol):
                    return _settles(server, protocol, self.place.networks, image)
            if not is_enough(MOST):
                raise SystemExit(f"masa: {kind} does not answer for networks without weights within {MOST // MIB} MiB")
            self.found[name] = smallest(is_enough, 16 * MIB, MOST, STEP)
            if self.keep:
                self.keep.write_text(json.dumps(self.found))
        return self.found[name]


class Terms:
    def __init__(self, name, bases, front):
        self.name, self.bases, self.front = name, bases, front

    def limits(self, policy, budget, rivals):
        """(the limit of its cgroup, --memory of swapnet's) for so many bytes of weights and activations."""
        own = self.bases.of(policy if policy in rivals else "completion")
        limit = budget + (self.bases.of("mmap") if self.name == "whole" else own)
        return limit, self.front + limit - own
