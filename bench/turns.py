#!/usr/bin/env python3
"""Models that take turns in one budget: how long the answer of a model takes whose weights have left memory, and how
much is read.

One swapnet-engine per build is told what swapnet-serve would tell it. Each request's time is set against
max(T, s / BW): T is the model's time with all weights in memory, s what the engine read meanwhile, for the next requests
too, BW what bench-bandwidth reads. All bytes read are set against what Belady's rule reads, which knows all requests in
advance. Of each build there are two engines: one is told which requests follow, as swapnet-serve tells what waits, and one
is told nothing. All engines take turns, so that a change of the machine hits all of them alike. The exit status is 1 if an answer
has other bits than plain PyTorch's."""
import argparse
import contextlib
import json
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[1:1] = [str(HERE / "lib"), str(HERE.parent / "tests" / "e2e" / "support")]

import bandwidth
import pythons
import table
import variants
from plan import MIB
from serve_engine import Engine

MODELS = ("resnet50", "densenet161", "efficientnet_b4", "convnext_tiny", "resnet101", "vit_b_16")
AHEAD = 3  # requests that wait behind the one that runs, of which an engine is told
COLUMNS = ("order", "build", "told", "model", "T ms", "read MiB", "ms", "x bound", "waited ms", "read/ideal", "same bits")


def make_models(python, where, names):
    """{name: (file, input, answer)}; made once."""
    if not all((where / f"{name}.out").exists() for name in names):
        subprocess.run([python, str(variants.HERE / "serve_programs.py"), "models", str(where), str(where), *names],
                       check=True, stdout=subprocess.DEVNULL, env=pythons.plain_environment())
    return {name: (where / name / "1" / "model.pt", (where / f"{name}.in").read_bytes(),
                   (where / f"{name}.out").read_bytes()) for name in names}


class Served:
    """An engine with all of the models; is_told: what comes next."""

    def __init__(self, engine, models, is_told):
        self.engine, self.models, self.is_told = engine, models, is_told
        engine.receive("READY")
        for number, (path, _, _) in enumerate(models.values()):
            engine.load(number, path)

    def infer(self, number, behind=()):
        """behind: the models of the requests that follow."""
        then = behind[:AHEAD] if self.is_told else None
        data, want = list(self.models.values())[number][1:]
        e = self.engine
        e.requests += 1
        request, group, groups = e.requests, 0, 1
        read = waited = 0
        began = time.perf_counter()
        tensors = e.tensors([("INPUT__0", "FP32", (1, 3, 224, 224), data)])
        while group < groups:
            head, outputs, _ = e.ask("RUN", request=request, model=number, group=group, tensors=tensors,
                                     inputs=len(tensors), steps=e.foretell(number, group, then))
            groups, group, tensors = head.groups, group + 1, ()
            read, waited = read + head.read_bytes, waited + head.wait_ns
        answer = e.fetch(request, outputs)
        seconds = time.perf_counter() - began
        return {"model": number, "seconds": seconds, "read": read, "waited": waited / 1e9,
                "same": next(iter(answer.values()))[2] == want}


def start(build, python, models, stack, budget=None, stats=None, store=None, is_told=False):
    library = build / "lib" / "libswapnet.so"
    env = pythons.plain_environment() | {"SWAPNET_PYTHON": python}
    if budget:
        env = variants.swapnet_environment(library, budget, stats, store) | {"SWAPNET_PYTHON": python}
    return Served(stack.enter_context(Engine(build / "bin" / "swapnet-engine", env)), models, is_told)


def ideal(order, sizes, room):
    """Bytes that Belady's rule reads for the requests, the last of which is the first of the next round: what is needed
    last leaves first, any part of a model at a time."""
    there, read = dict.fromkeys(sizes, 0), 0
    for i, model in enumerate(order):
        read += sizes[model] - there[model]
        there[model] = sizes[model]
        rest = order[i + 1:] + order
        for last in sorted(there, key=rest.index, reverse=True):
            over = sum(there.values()) - room
            if over > 0:
                there[last] -= min(over, there[last])
    return read


def orders(count, rounds, seed):
    chance = random.Random(seed)
    return {"in turns": [i for _ in range(rounds) for i in range(count)],
            "random": [chance.randrange(count) for _ in range(rounds * count)]}


def measure(args, models, python, where, budget):
    """{(order, build, is_told): [answer]}, {model: T}."""
    with contextlib.ExitStack() as stack:
        alone = start(args.build[0], python, models, stack)
        for number in range(len(models)):
            for _ in range(3):
                alone.infer(number)
        lanes = {(i, is_told): start(b, python, models, stack, budget, where / f"{i}-{is_told}.stats.json",
                                     where / f"store-{i}", is_told)
                 for i, b in enumerate(args.build) for is_told in (False, True)}
        for warm in range(2 * len(models)):
            for served in lanes.values():
                served.infer(warm % len(models))
        found, in_memory = {}, {number: [] for number in range(len(models))}
        for name, order in orders(len(models), args.rounds, args.seed).items():
            for i, model in enumerate(order):
                in_memory[model].append(alone.infer(model)["seconds"])
                for lane, served in list(lanes.items())[::1 if i % 2 else -1]:
                    found.setdefault((name, *lane), []).append(served.infer(model, order[i + 1:]))
    return found, {model: statistics.median(times) for model, times in in_memory.items()}


def rows(found, models, alone, speed, builds, room, sizes):
    for (order, b, is_told), answers in found.items():
        best = ideal([a["model"] for a in answers], sizes, room)
        for number, name in [*enumerate(models), (None, "all")]:
            own = [a for a in answers if number in (None, a["model"])]
            if not own:
                continue
            factors = [a["seconds"] / max(alone[a["model"]], a["read"] / speed) for a in own]
            yield (order, builds[b].name if builds[b].name else str(builds[b]), "yes" if is_told else "no", name,
                   f"{alone[number] * 1e3:.0f}" if name != "all" else "",
                   f"{statistics.mean(a['read'] for a in own) / MIB:.0f}",
                   f"{statistics.median(a['seconds'] for a in own) * 1e3:.0f}",
                   f"{statistics.median(factors):.2f}", f"{statistics.mean(a['waited'] for a in own) * 1e3:.0f}",
                   f"{sum(a['read'] for a in own) / best:.2f}" if name == "all" else "",
                   table.same_bits(all(a["same"] for a in own)))


def told_against_not(found, builds):
    """What an engine that is told what follows takes, against one that is not."""
    for (order, b, is_told), told in found.items():
        if not is_told:
            continue
        untold = found[order, b, False]
        time_ = statistics.median(t["seconds"] / u["seconds"] for t, u in zip(told, untold))
        waited, read = (sum(t[what] for t in told) / max(sum(u[what] for u in untold), 1e-9) for what in ("waited", "read"))
        yield order, builds[b].name, f"{time_:.2f}", f"{waited:.2f}", f"{read:.2f}"


def main():
    parser = argparse.ArgumentParser(prog="bench/turns.py", description=__doc__)
    parser.add_argument("--build", type=Path, action="append", help="directory with bin/ and lib/; several are compared")
    parser.add_argument("--models", default=",".join(MODELS), help="of torchvision, with a comma between them")
    parser.add_argument("--part", type=float, default=0.35, help="budget, as a part of all models' bytes")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dir", type=Path, default=variants.OUT, help="work directory, on the disk that is measured")
    parser.add_argument("--python", help="interpreter with torch and torchvision")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    args.build = [b.resolve() for b in args.build or [variants.DEFAULT_LIBRARY.parent.parent]]
    where = args.dir.resolve() / "turns"
    where.mkdir(parents=True, exist_ok=True)
    python = pythons.with_torchvision(args.python)
    models = make_models(python, where, args.models.split(","))
    sizes = {number: path.stat().st_size for number, (path, _, _) in enumerate(models.values())}
    budget = int(sum(sizes.values()) * args.part)
    for b in range(len(args.build)):
        (where / f"store-{b}").mkdir(exist_ok=True)
    largest = max(models.values(), key=lambda m: m[0].stat().st_size)[0]
    speeds = [bandwidth.measure(largest, args.build[0] / "lib" / "libswapnet.so")]
    found, alone = measure(args, models, python, where, budget)
    speeds.append(bandwidth.measure(largest, args.build[0] / "lib" / "libswapnet.so"))
    speed = statistics.mean(speeds)
    lines = list(rows(found, models, alone, speed, args.build, budget, sizes))
    print(table.grid(COLUMNS, lines))
    print("\ntold what follows, against not told:")
    print(table.grid(("order", "build", "x time", "x waited", "x read"), list(told_against_not(found, args.build))))
    print(f"\nmodels {sum(sizes.values()) / MIB:.0f} MiB, budget {budget / MIB:.0f} MiB, disk {speed / 1e6:.0f} MB/s")
    if args.json:
        args.json.write_text(json.dumps({"rows": lines, "answers": {f"{o}/{b}/{t}": a for (o, b, t), a in found.items()}}))
    return 0 if all(a["same"] for answers in found.values() for a in answers) else 1


if __name__ == "__main__":
    sys.exit(main())
