#!/usr/bin/env python3
"""The experiments of the edge-serving paper, simulated: arrivals, deadlines, and times that are off.

Asks `swapnetctl serve plan` for each policy, rate, kind of arrivals and error of the times that the policy knows, and prints a table in
Markdown: the part of the requests that was in time, and the mean completion time over what a request takes alone. Batch, which takes as many
as it may, is also there with whatever bound of the batch has most in time in a cell, which stands behind it. Nothing depends on the machine. The model is ResNet-50 as a server with 47 MiB measured it at 64 x 64 pixels; --from takes another server's document."""
import argparse
import concurrent.futures
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path[1:1] = [str(Path(__file__).resolve().parent / "lib")]

import variants
from plan import MIB

WEIGHTS_MIB = (5, 5, 8, 4, 8, 0, 23, 0, 17, 0, 17, 0, 0, 0, 7)
COMPUTE_NS = 11_000_000
ACTIVATION_BYTES = 3 * MIB
POLICIES = ("no-batch", "batch", "batch-best", "completion", "edf", "tardy")
BOUNDS = (2, 4, 8, 16, 32)
TIMELESS = ("no-batch", "batch", "batch-best")  # these do not look at times, so errors change nothing


def resnet50(state_kib):
    """Each request that is set aside holds so much; one that has not begun holds nothing."""
    groups = [{"weight_bytes": w * MIB, "compute_ns": COMPUTE_NS, "activation_bytes": ACTIVATION_BYTES, "state_bytes": state_kib << 10}
              for w in WEIGHTS_MIB]
    return {"models": [{"name": "resnet50", "groups": groups}]}


def alone_seconds(document, name, disk):
    """Where nothing is in memory, and reading and computing of a group run side by side."""
    groups = next(model["groups"] for model in document["models"] if model["name"] == name)
    return sum(max(g["compute_ns"] / 1e9, g["weight_bytes"] / disk) for g in groups)


def ask(args, document, deadline, policy, arrivals, error, rate, turns, seed):
    """(part in time, mean completion time in s, requests)"""
    command = [args.build / "bin" / "swapnetctl", "serve", "plan", "--from", document, "--budget", args.budget, "--disk", f"{args.disk}M",
               "--duration", args.duration, "--policy", policy, "--arrivals", arrivals, "--time-error", error, "--seed", seed, "-o", "json",
               *(["--turns", turns] if turns else []), f"{args.model},rate={rate:.6f},deadline={deadline * 1e3:.3f}"]
    out = subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True).stdout
    model = json.loads(out)["models"][0]
    return model["on_time"], model["mean_latency_s"], model["requests"]


def cell(args, pool, document, alone, policy, arrivals, error, step, turns=None):
    """A function that waits for the means: (part in time, mean completion time), and what the cell has behind them."""
    seeds = [pool.submit(ask, args, document, args.deadline * alone, policy, arrivals, error, step / alone, turns, seed)
             for seed in range(1, args.seeds + 1)]
    return lambda: (statistics.mean(f.result()[0] for f in seeds), statistics.mean(f.result()[1] for f in seeds) / alone, "")


def best_bound(args, pool, document, alone, arrivals, error, step):
    """batch-best: the bound with most in time, and of equal ones that with the least mean completion time."""
    cells = [(turns, cell(args, pool, document, alone, "batch", arrivals, error, step, turns)) for turns in BOUNDS]

    def best():
        on_time, mean, turns = max(((*get()[:2], turns) for turns, get in cells), key=lambda found: (round(found[0], 3), -found[1]))
        return on_time, mean, f" ({turns})"
    return best


def row(args, pool, document, alone, policy, arrivals, error):
    def one(step):
        if policy == "batch-best":
            return best_bound(args, pool, document, alone, arrivals, error, step)
        return cell(args, pool, document, alone, policy, arrivals, error, step)
    return arrivals, error, policy, [one(step) for step in args.steps]


def lines(args, document, alone):
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        rows = [row(args, pool, document, alone, policy, arrivals, error)
                for arrivals in args.arrivals for error in args.errors for policy in args.policies
                if error == args.errors[0] or policy not in TIMELESS]
        yield "| arrivals, error | policy | " + " | ".join(map(str, args.steps)) + " |"
        yield "|:--|:--|" + "--:|" * len(args.steps)
        before = None
        for arrivals, error, policy, cells in rows:
            first = "" if (arrivals, error) == before else f"{arrivals}, {error * 100:.0f} %"
            before = (arrivals, error)
            yield f"| {first} | {policy} | " + " | ".join("{:.2f} {:.1f}{}".format(*get()) for get in cells) + " |"


def main():
    def words(kind):
        return lambda text: [kind(word) for word in text.split(",")]

    parser = argparse.ArgumentParser(prog="bench/edge_simulated.py", description=__doc__)
    parser.add_argument("--policies", type=words(str), default=POLICIES)
    parser.add_argument("--arrivals", type=words(str), default=("poisson", "pareto", "constant"))
    parser.add_argument("--errors", type=words(float), default=(0, 0.25))
    parser.add_argument("--steps", type=words(float), default=(0.8, 1.5, 3, 4.5, 6), help="rates, of that at which one by one are served")
    parser.add_argument("--seeds", type=int, default=1, help="traces of a cell, which has their mean")
    parser.add_argument("--duration", type=int, default=300)
    parser.add_argument("--deadline", type=float, default=4, help="times what a request takes alone")
    parser.add_argument("--disk", type=int, default=90, help="MiB/s")
    parser.add_argument("--budget", default="47M")
    parser.add_argument("--state-kib", type=int, default=205, help="that a request set aside holds")
    parser.add_argument("--from", dest="document", type=Path, help="what 'swapnetctl status -o json' prints of a server")
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--build", type=Path, default=variants.DEFAULT_LIBRARY.parent.parent)
    args = parser.parse_args()
    args.build = args.build.resolve()
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        document = json.loads(args.document.read_text()) if args.document else resnet50(args.state_kib)
        json.dump(document, file)
        file.flush()
        alone = alone_seconds(document.get("serve", document), args.model, args.disk * MIB)
        print(f"alone {alone:.3f} s\n", file=sys.stderr)
        for line in lines(args, file.name, alone):
            print(line, flush=True)


if __name__ == "__main__":
    main()
