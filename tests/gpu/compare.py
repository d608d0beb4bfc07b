"""Runs work.py on a device with and without swapnet, compares the results, and prints a table.

Called by tests/gpu/run. Exit status: 0 when all that this device and this swapnet support came out equal and within what
the documentation says, else 1.
"""
import argparse
import concurrent.futures
import dataclasses
import json
import mmap
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parent / "e2e" / "programs" / "shared"))

import rules

MIB = 1 << 20
GRANULE = 2 * MIB  # of memory that is mapped on a card
WAYS = ["pageable", "registered", "managed"]
PARTS = ["moves", "leaks", "rules", "models"]


@dataclasses.dataclass(frozen=True)
class Size:
    moved: str
    crossings: tuple  # (SWAPNET_UNIFIED, where the weights come from)
    models: tuple
    ways: tuple
    shares: tuple
    passes: int
    moves: int
    link_bytes: int


FROM = {"move": "memory", "load": "a checkpoint", "map": "a checkpoint (map_location)"}
FULL = Size("mlp", tuple((wish, how) for wish in ("auto", *WAYS, "off") for how in FROM),
            ("resnet101", "vit_b_16", "llama_1g"), ("auto", *WAYS), (25, 50, 100), 20, 1000, 256 * MIB)
SMALL = Size("mlp_small", (*(("auto", how) for how in FROM), ("pageable", "load")), ("three_small",), ("auto",), (50,),
             2, 100, MIB)


@dataclasses.dataclass
class Run:
    """One process of work.py. `why`: it did not do what it was to, or nothing."""
    values: dict
    notes: dict
    stats: dict
    lines: list  # what swapnet said
    why: str = ""

    def said(self, text):
        return next((line for line in self.lines if text in line), None)


class Machine:
    """Starts processes on the device, until the time is up."""

    def __init__(self, options, scratch):
        self.options, self.scratch = options, scratch
        self.deadline = time.monotonic() + options.minutes * 60
        self.runs, self.lock = 0, threading.Lock()

    def log(self, command, env, done, seconds):
        if not self.options.log:
            return
        settings = {k: v for k, v in env.items() if k.startswith(("SWAPNET", "GPU_", "STANDIN"))}
        with self.lock, self.options.log.open("a") as log:
            log.write(f"{' '.join(map(str, command))}\n{settings}\nstatus {done.returncode}, {seconds:.1f} s\n{done.stderr}\n")

    def run(self, *args, budget=None, **settings):
        """work.py with these arguments; under swapnet when there is a budget, in bytes."""
        with self.lock:
            self.runs += 1
            where = self.scratch / str(self.runs)
        where.mkdir()
        env = {k: v for k, v in os.environ.items() if not k.startswith("SWAPNET") and k != "LD_PRELOAD"}
        env |= {"PYTHONDONTWRITEBYTECODE": "1", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
        if self.options.standin:
            env |= {"GPU_STANDIN": str(self.options.build / "tests" / "fakes"), "STANDIN_DEVICE": self.options.standin}
        if budget:
            env |= {"LD_PRELOAD": str(self.options.build / "lib" / "libswapnet.so"), "SWAPNET_BUDGET": str(int(budget)),
                    "SWAPNET_STATS": str(where / "stats.json"), "SWAPNET_STORE": str(where), "SWAPNET_DAEMON": "off"}
            if self.options.standin:
                env["SWAPNET_DEVICE"] = "privateuseone"
            env |= settings
        seconds = self.deadline - time.monotonic()
        if seconds <= 0:
            return Run({}, {}, {}, [], "not reached in time")
        command = [self.options.python, HERE / "work.py", where / "record.json", *map(str, args)]
        started, most = time.monotonic(), self.options.minutes * 12
        try:
            done = subprocess.run(command, env=env, cwd=where, capture_output=True, text=True, timeout=min(seconds, most),
                                  stdin=subprocess.DEVNULL, check=False)
        except subprocess.TimeoutExpired as cut:
            said = cut.stderr.decode(errors="replace") if cut.stderr else ""
            self.log(command, env, subprocess.CompletedProcess(command, "cut off", "", said), time.monotonic() - started)
            return Run({}, {}, {}, [], "did not end" if seconds > most else "not reached in time")
        lines = [line for line in done.stderr.splitlines() if line.startswith("swapnet:")]
        self.log(command, env, done, time.monotonic() - started)
        record, stats = _json(where / "record.json"), _json(where / "stats.json")
        shutil.rmtree(where)
        run = Run(record.get("values", {}), record.get("notes", {}), stats, lines)
        if done.returncode or not record:
            run.why = f"ended with {done.returncode}: {' | '.join(done.stderr.splitlines()[-4:])}"
        elif budget and not stats:
            run.why = f"swapnet was not there: {' | '.join(lines)}"
        return run


def _json(path):
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return {}


class Table:
    """Rows of text, and whether all is well."""

    def __init__(self):
        self.failures, self.text = [], []

    def say(self, line=""):
        print(line, flush=True)
        self.text.append(line)

    def head(self, *cells):
        self.say()
        self.row(*cells)
        self.say("|" + ":--|" * len(cells))

    def row(self, *cells):
        self.say("| " + " | ".join(map(str, cells)) + " |")

    def fail(self, what):
        self.failures.append(what)
        return f"**{what}**"


def mib(n):
    return f"{n / MIB:.1f}"


def differs(reference, run):
    """Why the run is not as good as the plain one, or "". """
    if run.why or reference.why:
        return run.why or f"plain: {reference.why}"
    names = [name for name in reference.values if run.values.get(name) != reference.values[name]]
    apart = run.notes.get("first_from_last")
    return f"different: {', '.join(names[:3])}{f' (first from last: {apart})' if apart else ''}" if names else ""


def about(machine, size, table):
    run = machine.run("about", size.link_bytes)
    if not run.why and not run.values["arrived"]:
        run.why = "it has not got the bytes that it was given"
    if run.why:
        table.say(table.fail(f"the device does not answer: {run.why}"))
        return None
    notes = run.notes
    for name, text in (("device", notes["device"]), ("PyTorch", notes["torch"]), ("processor", notes["processor"]),
                       ("kernel", os.uname().release),
                       ("attributes", ", ".join(f"{k} {v}" for k, v in notes["attributes"].items())),
                       ("host link, GB/s", ", ".join(f"{k} {notes[f'{k}_bytes_per_s'] / 1e9:.1f}"
                                                     for k in ("pinned", "pageable")))):
        table.say(f"- {name}: {text}")
    return notes


def way_of(run, wish):
    """The way that was taken; None if it is one that the device does not have."""
    way = run.stats.get("unified", "none")
    return None if wish in WAYS and way == "none" else way


def unsupported(run, wish, bad):
    """For a way that the device does not have: what swapnet says of it. Its results have to be right all the same."""
    return not bad and way_of(run, wish) is None and run.said("SWAPNET_UNIFIED")


def moved(machine, size, table, checkpoint, pool):
    """Who moves a weight in memory, or one from a checkpoint, copies nothing where memory is shared."""
    path, facts = checkpoint
    plain = pool.submit(machine.run, "infer", size.moved, path, "move", 1)
    jobs = {(wish, how): pool.submit(machine.run, "infer", size.moved, path, how, 1, budget=1.75 * facts["weights"],
                                     SWAPNET_UNIFIED=wish) for wish, how in size.crossings}
    table.head("SWAPNET_UNIFIED", "way", "moved from", "equal", "MiB not copied", "MiB copied", "MiB of weights")
    for (wish, how), job in jobs.items():
        run = job.result()
        bad = differs(plain.result(), run)
        refusal = unsupported(run, wish, bad)
        if refusal:
            table.row(wish, f"not on this device: {refusal}", FROM[how], "yes", "", "", "")
            continue
        way, elided = way_of(run, wish), run.stats.get("unified_elided_bytes", 0)
        if way is None:
            bad = bad or "no way was taken, and no word of why"
        # What is in memory cannot become managed; what PyTorch moves is not copied by anybody else.
        all_of_it = way in ("pageable", "registered") or (way == "managed" and how != "move")
        if not bad and elided != (facts["shared"] if all_of_it else 0):
            bad = f"{elided} bytes were not copied, of {facts['shared']}"
        table.row(wish, way, FROM[how], table.fail(bad) if bad else "yes", mib(elided),
                  mib(run.stats.get("unified_copied_bytes", 0)), mib(facts["shared"]))


def leaks(machine, size, table, shares, pool):
    settings = {f"SWAPNET_UNIFIED={wish}": {"SWAPNET_UNIFIED": wish} for wish in size.ways}
    if not shares:
        settings["SWAPNET_DEVICE_BUDGET=64M"] = {"SWAPNET_DEVICE_BUDGET": "64M"}
    jobs = {name: pool.submit(machine.run, "moves", size.moves, budget=256 * MIB, **env) for name, env in settings.items()}
    plain = pool.submit(machine.run, "moves", size.moves)
    # The driver's free memory is the machine's where the two have it in common, and goes up and down.
    most = 64 * MIB if shares else 8 * MIB
    table.head(f"{size.moves} moves", "equal", "allocator grows by", "driver's memory beside it, MiB", "host grows by, MiB")
    for name, job in jobs.items():
        run = job.result()
        bad = differs(plain.result(), run)
        if unsupported(run, settings[name].get("SWAPNET_UNIFIED"), bad):
            table.row(name, "not on this device", "", "", "")
            continue
        device, beside, host = (run.notes.get(f"{what}_growth", 0) for what in ("device", "beside", "host"))
        if not bad and (device > 0 or beside > most or host > 16 * MIB):
            bad = f"a leak: {device} bytes, {mib(beside)} MiB beside them, {mib(host)} MiB of the host's"
        table.row(name, table.fail(bad) if bad else "yes", device, mib(beside), mib(host))


def ruled(machine, size, table, shares, pool):
    """Whatever a program may do to the weights, in memory that they share with the processor or come and go in."""
    weights = rules.WEIGHT_BYTES
    settings = {f"SWAPNET_UNIFIED={wish}": (4 * weights, {"SWAPNET_UNIFIED": wish}) for wish in size.ways}
    if shares:
        settings[f"SWAPNET_BUDGET={size.shares[0]} %"] = (weights * size.shares[0] // 100, {})
    else:
        part = weights * size.shares[0] // 100 // GRANULE * GRANULE
        settings[f"SWAPNET_DEVICE_BUDGET={size.shares[0]} %"] = (4 * weights, {"SWAPNET_DEVICE_BUDGET": str(part)})
    plain = pool.submit(machine.run, "ruled")
    jobs = {name: pool.submit(machine.run, "ruled", budget=budget, **env) for name, (budget, env) in settings.items()}
    table.head("setting", "way", *rules.NAMES)
    for name, job in jobs.items():
        run, wish = job.result(), settings[name][1].get("SWAPNET_UNIFIED", "auto")
        bad = differs(plain.result(), run)
        if unsupported(run, wish, bad):
            table.row(name, "not on this device", *(["equal"] * len(rules.NAMES)))
            continue
        if bad and (run.why or plain.result().why):
            table.row(name, way_of(run, wish) or "none", table.fail(bad), *([""] * (len(rules.NAMES) - 1)))
            continue
        others = [other for other, value in plain.result().values.items() if run.values.get(other) != value]
        table.row(name, way_of(run, wish) or "none",
                  *(table.fail(f"{rule}: other bits") if any(other.startswith(f"{rule}: ") for other in others) else "equal"
                    for rule in rules.NAMES))


def in_budget(run, b, shared, shares):
    """Why the run with this budget is not what it should be, or "". """
    stats = run.stats
    if b < shared and not stats.get("device_swap_ins", 0) and not (shares and stats.get("swap_ins", 0)):
        return "nothing came and went"
    if stats.get("device_kept_bytes", 0):
        return f"{stats['device_kept_bytes']} bytes of weights were kept beyond the budget"
    if shares and stats.get("over_budget_bytes", 0):
        return f"{stats['over_budget_bytes']} bytes beyond the budget"
    if not shares and stats.get("device_peak_bytes", 0) > b:
        return f"{stats['device_peak_bytes']} bytes of the device for weights, with a budget of {b}"
    return ""


def latencies(machine, size, table, checkpoints, speed, shares, pool):
    """Every model with every way to common memory, and in every budget of the device: of the processor's memory where the
    device shares that. `speed`: bytes per second of what is left out."""
    table.head("model", "MiB", "setting", "way", "equal", "plain ms", "swapnet ms", "limit ms", "times the limit")
    for name in size.models:
        path, facts = checkpoints[name]
        args, budget = ("infer", name, path, "load", size.passes), 2 * facts["weights"] + 512 * MIB
        plain, again = pool.submit(machine.run, *args), pool.submit(machine.run, *args)
        jobs = {(f"SWAPNET_UNIFIED={wish}", wish, None): pool.submit(
            machine.run, *args, budget=budget, SWAPNET_UNIFIED=wish) for wish in size.ways}
        for share in size.shares:
            b = max(facts["weights"] * share // 100, 8 * MIB)
            if shares:
                jobs[f"SWAPNET_BUDGET={share} %", "auto", b] = pool.submit(machine.run, *args, budget=b)
            else:
                b = -(-b // GRANULE) * GRANULE
                jobs[f"SWAPNET_DEVICE_BUDGET={share} %", "auto", b] = pool.submit(
                    machine.run, *args, budget=budget, SWAPNET_DEVICE_BUDGET=str(b))
        plain, again = plain.result(), again.result()
        control = differs(plain, again)
        seconds = plain.notes.get("latency_s", 0)
        if control:
            table.row(name, mib(facts["weights"]), "plain, twice", "", table.fail(control), "", "", "", "")
        results = [(*key, job.result()) for key, job in jobs.items()]
        if not shares:  # alone, as it leaves no memory to others
            results.append(("a card nearly full", "auto", None, machine.run(
                *args, budget=budget, GPU_LEAVE=str(facts["weights"] // 2), STANDIN_MEMORY="512")))
        for setting, wish, b, run in results:
            bad = differs(plain, run)
            cells = [name, mib(facts["weights"]), setting, way_of(run, wish) or "none"]
            refusal = unsupported(run, wish, bad) if b is None else not bad and no_budget(run)
            if refusal:
                table.row(*cells, f"not supported: {refusal}", "", "", "", "")
                continue
            if b is not None and not bad:
                bad = in_budget(run, b, facts["shared"], shares)
            elif setting == "a card nearly full" and not bad and not run.stats.get("device_swap_ins", 0):
                bad = "nothing came and went"
            limit = max(seconds, 0 if b is None else (facts["weights"] - b) / speed)
            took = run.notes.get("latency_s", 0)
            table.row(*cells, table.fail(bad) if bad else "yes", f"{1e3 * seconds:.1f}", f"{1e3 * took:.1f}",
                      f"{1e3 * limit:.1f}", f"{took / limit:.2f}" if limit else "")


def no_budget(run):
    """What swapnet says where it has no use for SWAPNET_DEVICE_BUDGET, or does not know it; not that it is too small."""
    line = run.said("SWAPNET_DEVICE_BUDGET")
    return line if line and "no room" not in line else None


def disk_speed(path, table):
    """Bytes per second of a file read past the page cache, up to 256 MiB of it."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    with mmap.mmap(-1, 4 * MIB) as buffer:
        start, n = time.perf_counter(), 0
        while n < 256 * MIB and (got := os.preadv(fd, [buffer], n)):
            n += got
            if got % 4096:
                break
        speed = n / (time.perf_counter() - start)
    os.close(fd)
    table.say(f"- disk, GB/s: {speed / 1e9:.1f}")
    return speed


def saved(machine, names, table):
    """{model: (checkpoint, its sizes)}"""
    paths = {name: machine.scratch / f"{name}.pth" for name in names}
    run = machine.run("save", *(word for item in paths.items() for word in item))
    if run.why:
        table.say(table.fail(f"no checkpoints: {run.why}"))
        return None
    return {name: (path, run.notes[name]) for name, path in paths.items()}


def main():
    parser = argparse.ArgumentParser(prog="tests/gpu/run")
    parser.add_argument("--python", required=True)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--standin", help="nano, xavier, orin, thor or discrete: no GPU but tests/fakes/cuda")
    parser.add_argument("--small", action="store_true", help="small models, few runs: tries the script itself")
    parser.add_argument("--minutes", type=float, default=60, help="for all of it; what is not reached then has failed")
    parser.add_argument("--jobs", type=int, help="so many processes at once, of those that nobody measures")
    parser.add_argument("--log", type=pathlib.Path, help="gets what every process has to say")
    parser.add_argument("--parts", default=",".join(PARTS), help="of the tables; default %(default)s")
    parser.add_argument("--ways", help="to common memory, of auto and those that SWAPNET_UNIFIED has")
    options = parser.parse_args()
    parts, ways = options.parts.split(","), options.ways.split(",") if options.ways else ["auto", *WAYS, "off"]
    if not {*parts} <= {*PARTS} or not {*ways} <= {"auto", *WAYS, "off"}:
        parser.error(f"--parts has {', '.join(PARTS)}; --ways has auto, {', '.join(WAYS)} and off")
    size, table = SMALL if options.small else FULL, Table()
    size = dataclasses.replace(size, ways=tuple(w for w in size.ways if w in ways),
                               crossings=tuple(c for c in size.crossings if c[0] in ways))
    with tempfile.TemporaryDirectory(prefix="swapnet-gpu-", dir=os.environ.get("SWAPNET_TEST_DIR", "/var/tmp")) as scratch:
        machine = Machine(options, pathlib.Path(scratch))
        # Processes side by side share the device's time and memory, which nobody measures of a stand-in.
        jobs = options.jobs or (4 if options.standin else 1)
        with (concurrent.futures.ThreadPoolExecutor(jobs) as pool,
              concurrent.futures.ThreadPoolExecutor(jobs if options.standin else 1) as alone):
            facts = about(machine, size, table)
            checkpoints = facts and saved(machine, (size.moved, *size.models), table)
            if checkpoints:
                shares = bool(facts["attributes"]["integrated"])
                speed = disk_speed(checkpoints[size.models[-1]][0], table) if shares else facts["pinned_bytes_per_s"]
                if "moves" in parts:
                    moved(machine, size, table, checkpoints[size.moved], pool)
                if "leaks" in parts:
                    leaks(machine, size, table, shares, alone)
                if "rules" in parts:
                    ruled(machine, size, table, shares, pool)
                if "models" in parts:
                    latencies(machine, size, table, checkpoints, speed, shares, alone)
    table.say()
    table.say(f"{machine.runs} processes, {len(table.failures)} failures")
    for failure in table.failures:
        table.say(f"FAILED: {failure}")
    return 1 if table.failures else 0


sys.exit(main())
