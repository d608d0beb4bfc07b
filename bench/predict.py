#!/usr/bin/env python3
"""Predicted against measured latency: profiles a model, predicts budgets, runs the model within them.

    python3 bench/predict.py [--models resnet101 gpt2] [--points 25 50 75 100] [--rounds 3]

A point p is a budget of other + p % of the weights, or the least that there is a plan for, if that is more. Each run
within a budget stands between two profiles of the model in memory, and is compared with the mean of what `swapnetctl
plan` predicts from either, so that both see the same minutes of the machine and its disk. Medians over the rounds; the
goal is a prediction within 10 % of what is measured. *drift* is the most that changed between the two profiles of one
run: the pace of the program in memory, or what is predicted for this budget, as when the disk's did. Where that is over
10 %, the machine was not fit for measuring, and the round does not count; *rounds* says how many do. The exit status is
1 where a prediction is further off, or no round counts.
"""
import argparse
import json
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile

import pythons
import variants

HERE = pathlib.Path(__file__).resolve().parent
BIN = HERE.parent / "build" / "release" / "bin"
MOST_DRIFT = MOST_ERROR = 0.1
MODELS = ("resnet101", "vgg19", "vit_b_16", "mobilenet_v2", "gpt2")


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=600)
    if done.returncode:
        sys.exit(f"{command}: {done.returncode}\n{done.stderr}")
    return done.stdout


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    options.add_argument("--points", nargs="+", type=int, default=[25, 50, 75, 100])
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--inferences", type=int, default=24)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--dir", default="/var/tmp", help="on the disk that is to be measured")
    options.add_argument("--json", help="write all numbers to this file")
    args = options.parse_args()
    rows = []
    store = tempfile.mkdtemp(prefix="swapnet-predict-", dir=args.dir)
    try:
        for model in args.models:
            for number in range(args.rounds):
                rows += one_round(args, model, number, store)
    finally:
        shutil.rmtree(store)
    missed = report(rows)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(rows, indent=1))
    for line in missed:
        print(f"predict: {line}", file=sys.stderr)
    sys.exit(1 if missed else 0)


def profiled(app, path, store):
    """What the app took, and the profile. In memory: no weight is streamed."""
    plain = float(run(BIN / "swapnetctl", "profile", "-o", path, "-s", store, "--", *app))
    with open(path) as text:
        return plain, json.load(text)


def plan(path, budget):
    """What `swapnetctl plan` says of the model within this."""
    return json.loads(run(BIN / "swapnetctl", "plan", "--total", budget, "-o", "json", path))["models"][0]


def one_round(args, model, number, store):
    """Each run within a budget has a profile before and one behind it, and is compared with the mean of what the two
    predict: a machine that slows down in between makes as much of one as it takes of the other."""
    python = pythons.PYTHON_213 if model in variants.TRANSFORMERS else pythons.with_torchvision()
    app = (python, HERE / "predict_app.py", model, args.inferences, args.threads)
    before, after = f"{store}/before.json", f"{store}/after.json"
    plain, made = profiled(app, before, store)
    weights, other = sum(layer["bytes"] for layer in made["layers"]), made["other_bytes"]
    least = plan(before, 2 * (weights + other))["minimum_budget_bytes"]
    points = args.points[:]
    random.Random(number).shuffle(points)  # no point is always the last of its round
    for point in points:
        # What the library needs besides: a little more than was measured, so that 100 % fits.
        budget = max(int(other * 1.05 + weights * point / 100), least) + (1 << 20)
        measured = float(run(BIN / "swapnetctl", "run", "-b", budget, "-s", store, "--", *app))
        later, _ = profiled(app, after, store)
        predictions = [plan(path, budget)["latency_s"] * 1e3 for path in (before, after)]
        drift = max((later / plain - 1, predictions[1] / predictions[0] - 1), key=abs)
        row = {"model": model, "round": number, "point": point, "budget_bytes": budget, "plain_ms": (plain + later) / 2,
               "drift": drift, "predicted_ms": statistics.mean(predictions), "measured_ms": measured}
        print(row, file=sys.stderr, flush=True)
        yield row
        plain = later
        before, after = after, before


def report(rows):
    """Errors are medians of each round's own: both of its numbers saw the same minutes of the machine. Those in which it
    drifted too far say nothing and are left out."""
    print(f"{'model':<12} {'point':>5} {'budget MiB':>10} {'plain ms':>9} {'predicted':>9} {'measured':>9} {'error':>7} "
          f"{'of rounds':>15} {'drift':>7} {'rounds':>6}")
    missed = []
    keys = sorted({(row["model"], row["point"]) for row in rows})
    for model, point in keys:
        mine = [row for row in rows if (row["model"], row["point"]) == (model, point) and abs(row["drift"]) <= MOST_DRIFT]
        if not mine:
            missed.append(f"{model} at {point} %: the machine was not fit for measuring in any round")
            continue
        plain, predicted, measured = (statistics.median(row[key] for row in mine)
                                      for key in ("plain_ms", "predicted_ms", "measured_ms"))
        errors = [row["predicted_ms"] / row["measured_ms"] - 1 for row in mine]
        error = statistics.median(errors)
        if abs(error) > MOST_ERROR:
            missed.append(f"{model} at {point} %: {error:+.1%} (goal {MOST_ERROR:.0%})")
        print(f"{model:<12} {point:>4}% {mine[0]['budget_bytes'] / (1 << 20):>10.1f} {plain:>9.1f} {predicted:>9.1f} "
              f"{measured:>9.1f} {error:>+7.1%} {min(errors):>+7.0%} {max(errors):>+7.0%} "
              f"{max(abs(row['drift']) for row in mine):>7.0%} {len(mine):>6}")
    print(f"{len(keys) - len(missed)} of {len(keys)} within {MOST_ERROR:.0%}")
    return missed


if __name__ == "__main__":
    main()
