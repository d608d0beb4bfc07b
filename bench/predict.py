#!/usr/bin/env python3
"""Predicted against measured latency: profiles a model while it runs within several budgets.

    python3 bench/predict.py [--models resnet101 gpt2] [--points 25 50 75 100] [--rounds 3]

A point p is a budget of other + p % of the weights, or the least that there is a plan for, if that is more. Each budget
has a process of its own, the profile another one. They take turns of a few inferences, and all but one are stopped
(SIGSTOP), so that the passes that are measured and those that a profile is made of see the same seconds of the machine.
Medians over the rounds, each of which starts all of them anew; the goal is a prediction within 10 % of what is measured.
*paired* is the error that is left when each turn is compared with the profiled process's turn beside it: what of the error
is not the machine's that has changed its pace between turns. *spread* is how far apart the medians of the turns of one
process in one round were, at most. The exit status is 1 where a prediction is further off.
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent / "lib"))

import pythons
import variants

HERE = pathlib.Path(__file__).resolve().parent
CTL = HERE.parent / "build" / "release" / "bin" / "swapnetctl"
MOST_ERROR = 0.1
MODELS = ("resnet101", "vgg19", "vit_b_16", "mobilenet_v2", "gpt2")
# Those that go on after a stop are often put on one processor together, and then some take turns there for passes on end:
# one process of MobileNetV2 took twice as long as another one, for all of its life.
EACH_ITS_PROCESSOR = {"OMP_PROC_BIND": "true", "OMP_PLACES": "threads"}
# Inferences of a turn; what was read ahead in the turns of others flatters the first one, which is not counted. Few, so that
# all have had their turn before a shared machine becomes another one, which ours does every ten seconds or so.
TURN = 4
# Passes that a profile's times are medians of (SWN_TIMES).
PROFILED = 128
# Until plans have settled, and turns enough for medians that do not go by which minute of a shared machine they saw. A
# profile sees what it wants to see of the disk in its first 79 passes: it begins so late that these are in the counted turns,
# but for the first few. A machine that had been idle gave a faster disk, and computed faster, for some ten seconds.
SETTLING, COUNTED = 20, 16
LATE = SETTLING + COUNTED - 21


class Process:
    """One program, stopped unless it is its turn."""

    def __init__(self, args, model, store, *prefix):
        python = pythons.PYTHON_213 if model in variants.TRANSFORMERS else pythons.with_torchvision()
        command = [CTL, *prefix, "-s", store, "--", python, HERE / "lib" / "predict_app.py", model, args.threads]
        self.errors = tempfile.TemporaryFile()
        self.child = subprocess.Popen([str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=self.errors, text=True, start_new_session=True,
                                      env={**os.environ, **EACH_ITS_PROCESSOR})
        self.turns = []
        self.answer()
        self.signal(signal.SIGSTOP)

    def signal(self, number):
        os.killpg(self.child.pid, number)

    def answer(self):
        line = self.child.stdout.readline()
        if not line:
            self.fail()
        return json.loads(line)

    def fail(self):
        self.child.wait()
        self.errors.seek(0)
        sys.exit(f"{self.child.args}: {self.child.returncode}\n{self.errors.read().decode(errors='replace')}")

    def turn(self):
        self.signal(signal.SIGCONT)
        self.child.stdin.write(f"{TURN}\n")
        self.child.stdin.flush()
        self.turns.append(statistics.median(self.answer()[1:]) * 1e3)
        self.signal(signal.SIGSTOP)

    def counted(self):
        return self.turns[-COUNTED:]

    def latency(self):
        return statistics.median(self.counted())

    def spread(self):
        return max(self.counted()) / min(self.counted()) - 1

    def end(self):
        self.signal(signal.SIGCONT)
        self.child.stdin.close()
        if self.child.wait(600):
            self.fail()

    def kill(self):
        if self.child.poll() is None:
            self.signal(signal.SIGKILL)
            self.child.wait()


def plan(profile, budget):
    """What `swapnetctl plan` says of the model within this."""
    command = [str(part) for part in (CTL, "plan", "--total", budget, "-o", "json", profile)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["models"][0]


def measured_once(profile):
    """What a prediction is made of, besides its layers: the disk, at rest and beside passes, and passes beside the disk."""
    with open(profile) as text:
        made = json.load(text)
    return {"alpha": made.get("coefficients", {}).get("alpha_s_per_byte"), "busy_alpha": made["busy_alpha_s_per_byte"],
            "rest_alpha": made["rest_alpha_s_per_byte"], "read_s": made["read_s"], "wait_s": made["wait_s"],
            "contention": made["busy_latency_s"] / made["latency_s"] - 1 if made["busy_latency_s"] else None}


def sizes(args, model, store):
    """Bytes of its weights, of everything else, and the least budget there is a plan for: what a short profile says."""
    path = f"{store}/sizes.json"
    process = Process(args, model, store, "profile", "-o", path)
    try:
        process.turn()
        process.end()
    finally:
        process.kill()
    with open(path) as text:
        made = json.load(text)
    weights, other = sum(layer["bytes"] for layer in made["layers"]), made["other_bytes"]
    return weights, other, plan(path, 2 * (weights + other))["minimum_budget_bytes"]


def one_round(args, model, number, store, size):
    weights, other, least = size
    path = f"{store}/profile.json"
    processes = {None: Process(args, model, store, "profile", "-o", path)}
    try:
        budgets = {}
        for point in args.points:
            # What the library needs besides: a little more than was measured, so that 100 % fits.
            budgets[point] = max(int(other * 1.05 + weights * point / 100), least) + (1 << 20)
            processes[point] = Process(args, model, store, "run", "-b", budgets[point])
        order = list(processes)
        for turn in range(SETTLING + COUNTED):
            random.Random(number).shuffle(order)
            for key in order:
                if key or turn >= LATE:
                    processes[key].turn()
        for key in args.points + [None]:
            processes[key].end()
    finally:
        for process in processes.values():
            process.kill()
    spread = max(process.spread() for process in processes.values())
    profiled = processes[None]
    made_of = measured_once(path)
    for point, budget in budgets.items():
        ratio = statistics.median(mine / its for mine, its in zip(processes[point].counted(), profiled.counted()))
        row = {"model": model, "round": number, "point": point, "budget_bytes": budget, "spread": spread,
               "plain_ms": profiled.latency(), "predicted_ms": plan(path, budget)["latency_s"] * 1e3,
               "measured_ms": processes[point].latency(),
               "paired_ms": ratio * statistics.median(profiled.turns[-PROFILED // TURN:]),
               **made_of}
        print(row, file=sys.stderr, flush=True)
        row["turns_ms"] = processes[point].counted()
        yield row


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    options.add_argument("--points", nargs="+", type=int, default=[25, 50, 75, 100])
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--threads", type=int, default=0, help="of the model; 0: PyTorch's own number")
    options.add_argument("--dir", default="/var/tmp", help="on the disk that is to be measured")
    options.add_argument("--json", help="write all numbers to this file")
    args = options.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # or those that are stopped stay, with all their memory
    rows = []
    store = tempfile.mkdtemp(prefix="swapnet-predict-", dir=args.dir)
    try:
        for model in args.models:
            size = sizes(args, model, store)
            for number in range(args.rounds):
                rows += one_round(args, model, number, store, size)
    finally:
        shutil.rmtree(store)
    missed = report(rows)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(rows, indent=1))
    for line in missed:
        print(f"predict: {line}", file=sys.stderr)
    sys.exit(1 if missed else 0)


def report(rows):
    """Errors are medians of each round's own: both of its numbers saw the same seconds of the machine."""
    print(f"{'model':<12} {'point':>5} {'budget MiB':>10} {'plain ms':>9} {'predicted':>9} {'measured':>9} {'error':>7} "
          f"{'of rounds':>15} {'paired':>7} {'spread':>7}")
    missed = []
    keys = sorted({(row["model"], row["point"]) for row in rows})
    for model, point in keys:
        mine = [row for row in rows if (row["model"], row["point"]) == (model, point)]
        plain, predicted, measured = (statistics.median(row[key] for row in mine)
                                      for key in ("plain_ms", "predicted_ms", "measured_ms"))
        errors, paired = ([row["predicted_ms"] / row[key] - 1 for row in mine] for key in ("measured_ms", "paired_ms"))
        error = statistics.median(errors)
        if abs(error) > MOST_ERROR:
            missed.append(f"{model} at {point} %: {error:+.1%} (goal {MOST_ERROR:.0%})")
        print(f"{model:<12} {point:>4}% {mine[0]['budget_bytes'] / (1 << 20):>10.1f} {plain:>9.1f} {predicted:>9.1f} "
              f"{measured:>9.1f} {error:>+7.1%} {min(errors):>+7.0%} {max(errors):>+7.0%} "
              f"{statistics.median(paired):>+7.1%} {max(row['spread'] for row in mine):>7.0%}")
    print(f"{len(keys) - len(missed)} of {len(keys)} within {MOST_ERROR:.0%}")
    return missed


if __name__ == "__main__":
    main()
