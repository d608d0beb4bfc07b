"""The first answer of a model that was idle for so long that none of its weights is in memory."""
import ctypes
import http.client
import os
import statistics
import threading

import bandwidth
import clients
import many
import programs
import table
import zoo
from plan import MIB

GOAL = 1.25
COLUMNS = ("model", "weights MiB", "missing MiB", "T ms", "beside ms", "disk MB/s", "missing/BW ms", "first ms", "x T bound", "x bound",
           "again ms", "same bits")


def add_options(parser):
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--fit", type=int, default=1, help="so many of the largest models fit into --memory")


class _Reader:
    """Reads of a file in a thread of this process, as fast as they come (bench/native/beside.c)."""

    def __init__(self, build, file):
        self.helper = ctypes.CDLL(str(build / "lib" / "libbench-beside.so"))
        self.helper.beside_ask.argtypes = self.helper.beside_settle.argtypes = [ctypes.c_uint64]
        self._check(self.helper.beside_open(os.fsencode(file)))

    @staticmethod
    def _check(rc):
        if rc < 0:
            raise SystemExit(f"reading beside: {os.strerror(-rc)}")

    def _read(self, size):
        self._check(self.helper.beside_ask(size) or self.helper.beside_settle(0))

    def beside(self, size, ask):
        """What ask() answers while so many bytes are read."""
        thread = threading.Thread(target=self._read, args=(size,))
        thread.start()
        answer = ask()
        thread.join()
        return answer


class _Trial:
    """One server, whose models are asked one at a time."""

    def __init__(self, setup, models, server, beside):
        self.setup, self.models, self.server, self.beside = setup, models, server, beside
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=clients.PATIENCE_SECONDS)
        self.plain = http.client.HTTPConnection("127.0.0.1", beside.port, timeout=clients.PATIENCE_SECONDS)
        self.reader = _Reader(setup.build, max(models.values(), key=lambda model: model.weight_bytes).file)

    def ask(self, model, k=0):
        answer = clients.one(self.server.port, model, k, connection=self.connection)
        if answer.error:
            raise SystemExit(f"{model.name}: {answer.error}")
        return answer

    def ask_beside(self, model):
        return clients.one(self.beside.port, model, 0, connection=self.plain)

    def displace(self, model):
        """Others are used until nothing of the model is in memory: each has been since, and they do not fit together."""
        for other in self.models.values():
            if other is not model:
                self.ask(other)

    def measure(self, model):
        self.displace(model)
        speed, in_memory, beside = [self._speed(model)], [], []

        def ask_in_memory():
            in_memory.append(self.ask_beside(model).seconds)
            beside.append(self.reader.beside(model.weight_bytes, lambda: self.ask_beside(model)).seconds)

        ask_in_memory()
        before = self.server.read_bytes()
        first = self.ask(model)
        read = self.server.read_bytes() - before
        ask_in_memory()
        speed.append(self._speed(model))
        again = [self.ask(model).seconds for _ in range(2)][-1]
        return {"model": model.name, "first": first.seconds, "same": first.same, "read": read,
                "missing": min(read, model.weight_bytes), "in_memory": in_memory, "beside": beside, "again": again, "speed": speed}

    def _speed(self, model):
        return bandwidth.measure(model.file, self.setup.build / "lib" / "libswapnet.so", model.weight_bytes)


def run(setup, args):
    models = zoo.make(setup.tracing, setup.python, setup.folder, args.models or zoo.SIX)
    repository = zoo.of_these(models, setup.folder / "first")
    memory, all_of_them = (many.memory_for(many.largest(models, n)) for n in (args.fit, len(models)))
    with setup.group("swapnet-serve", memory + setup.beside) as group, \
            setup.group("swapnet-beside", None) as other, \
            programs.swapnet(setup.build, setup.python, repository, memory, group, setup.folder / "first.log",
                             setup.folder / "store") as server, \
            programs.swapnet(setup.build, setup.python, repository, all_of_them + 512 * MIB, other,
                             setup.folder / "beside.log", setup.folder / "store-beside") as beside:
        for one in (server, beside):
            if one.ended:
                raise SystemExit(f"swapnet-serve: {one.ended}\n{one.last_words()}")
        trial = _Trial(setup, models, server, beside)
        for _ in range(3):
            for model in models.values():
                trial.ask(model)
                trial.ask_beside(model)
        found = []
        for n in range(args.rounds):
            for model in models.values():
                found.append(trial.measure(model))
            setup.say(f"round {n + 1} of {args.rounds}")
    return _report(setup, models, found, memory)


def _factor(f, what):
    """How many times max(T, missing / BW) the first answer takes; T: of the server in memory, `what`."""
    return f["first"] / max(statistics.mean(f[what]), f["missing"] / statistics.mean(f["speed"]))


def _report(setup, models, found, memory):
    rows, failed = [], []
    for name, model in [*models.items(), ("all", None)]:
        own = [f for f in found if name in ("all", f["model"])]
        speed = statistics.median(s for f in own for s in f["speed"])
        missing = statistics.median(f["missing"] for f in own)
        factor = statistics.median(_factor(f, "beside") for f in own)
        rows.append((name, f"{model.weight_bytes / MIB:.0f}" if model else "", f"{missing / MIB:.0f}",
                     *(f"{statistics.median(t for f in own for t in f[what]) * 1e3:.0f}" for what in ("in_memory", "beside")),
                     f"{speed / 1e6:.0f}",
                     f"{missing / speed * 1e3:.0f}", f"{statistics.median(f['first'] for f in own) * 1e3:.0f}",
                     f"{statistics.median(_factor(f, 'in_memory') for f in own):.2f}", f"{factor:.2f}",
                     f"{statistics.median(f['again'] for f in own) * 1e3:.0f}",
                     table.same_bits(all(f["same"] for f in own))))
        if factor > GOAL:
            failed.append(f"{name}: the first answer takes {factor:.2f} times max(beside, missing / BW); the goal is {GOAL}")
    setup.print_table(COLUMNS, rows)
    print(f"- models {sum(m.weight_bytes for m in models.values()) / MIB:.0f} MiB, --memory {memory / MIB:.0f} MiB")
    if not all(f["same"] for f in found):
        failed.append("other bits than plain PyTorch's")
    return failed, {"found": found}
