#!/usr/bin/env python3
"""Predicted against measured latency: profiles a model, predicts budgets, runs the model within them.

    python3 bench/predict.py [--models resnet101 vgg19] [--points 25 50 75 100] [--rounds 3]

A point p is a budget of other + p % of the weights. In every round the model is profiled anew, in memory, and then run
within each budget; the prediction is that of `swapnetctl plan` from that round's profile, so both see the same hour of
the machine. Medians over the rounds; the goal is a prediction within 10 % of what is measured.
"""
import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
BIN = HERE.parent / "build" / "release" / "bin"


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=600)
    if done.returncode:
        sys.exit(f"{command}: {done.returncode}\n{done.stderr}")
    return done.stdout


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--models", nargs="+", default=["resnet101", "vgg19"])
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
    report(rows)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(rows, indent=1))


def one_round(args, model, number, store):
    app = (sys.executable, HERE / "predict_app.py", model, args.inferences, args.threads)
    profile = f"{store}/{model}.json"
    plain = float(run(BIN / "swapnetctl", "profile", "-o", profile, "-s", store, "--", *app))
    with open(profile) as text:
        made = json.load(text)
    weights = sum(layer["bytes"] for layer in made["layers"])
    for point in args.points:
        # What the library needs besides: a little more than was measured, so that 100 % fits.
        budget = int(made["other_bytes"] * 1.05 + weights * point / 100) + (1 << 20)
        plan = json.loads(run(BIN / "swapnetctl", "plan", "--total", budget, "-o", "json", profile))["models"][0]
        measured = float(run(BIN / "swapnetctl", "run", "-b", budget, "-s", store, "--", *app))
        row = {"model": model, "round": number, "point": point, "budget_bytes": budget, "plain_ms": plain,
               "predicted_ms": plan["latency_s"] * 1e3, "measured_ms": measured}
        print(row, file=sys.stderr, flush=True)
        yield row


def report(rows):
    print(f"{'model':<12} {'point':>5} {'budget MiB':>10} {'plain ms':>9} {'predicted':>9} {'measured':>9} {'error':>7}")
    within = 0
    keys = sorted({(row["model"], row["point"]) for row in rows})
    for model, point in keys:
        mine = [row for row in rows if (row["model"], row["point"]) == (model, point)]
        plain, predicted, measured = (statistics.median(row[key] for row in mine)
                                      for key in ("plain_ms", "predicted_ms", "measured_ms"))
        error = predicted / measured - 1
        within += abs(error) <= 0.1
        print(f"{model:<12} {point:>4}% {mine[0]['budget_bytes'] / (1 << 20):>10.1f} {plain:>9.1f} {predicted:>9.1f} "
              f"{measured:>9.1f} {error:>+7.1%}")
    print(f"{within} of {len(keys)} within 10 %")


if __name__ == "__main__":
    main()
