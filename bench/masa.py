#!/usr/bin/env python3
"""The Masa paper's experiments with policies over load and compute tasks, on a simulated machine (swapnet-sched-sim).

    bench/masa.py optimality       makespans against the optimum of CP-SAT (scripts/setup --with-ortools)
    bench/masa.py deterministic    small, mixed and lifelogging jobs that come one at a time
    bench/masa.py stochastic       scenarios I and II of the paper and of its code, by load and memory
    bench/masa.py cascades         CA-wait, CA-preempt, CA-prefetch, by label probability
    bench/masa.py batching         n inputs in one job against n jobs of one input
    bench/masa.py estimates        memory needs known with a factor
    bench/masa.py arrivals         Poisson, Pareto, constant and normal arrivals

A table in Markdown goes to stdout, or with --output to a file, with commit, command and machine; --csv writes the numbers,
--plot a picture. Nothing here is a time of this machine: results are those of the model, and the same everywhere."""
import argparse
import collections
import csv
import io
import json
import platform
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[1:1] = [str(HERE / "lib"), str(HERE / "tasks")]

import masa_networks as networks

ROOT = HERE.parent
MILLION = 1000 * 1000
SMALL = ("agenet", "gendernet", "tinyyolo")
MIXED = ("agenet", "emotionnet", "facenet")
LIFELOGGING = ("tinyyolo", "emotionnet", "memnet", "scenenet", "sos")
JOBS = {"small": SMALL, "mixed": MIXED, "lifelogging": LIFELOGGING}
LIGHT = ("facenet", "agenet<facenet", "gendernet<facenet")
HEAVY = ("memnet", "tinyyolo", "facenet<tinyyolo", "agenet<facenet", "gendernet<facenet", "emotionnet<facenet")
OTHERS = ("masa", "masa-ordered", "masa-code", "bulk", "deepeye", "deepeye-frugal")
# What a policy's name in the tables means: (policy, options).
OURS = {"lookahead, as Masa": ("lookahead", ("--private",)),
        "lookahead, reader": ("lookahead", ("--private", "--readers", "1")),
        "lookahead": ("lookahead", ("--readers", "1"))}


class Simulator:
    def __init__(self, program, where):
        self.program, self.where = program, Path(where)

    def write(self, lines):
        path = self.where / "networks.csv"
        path.write_text("\n".join(lines) + "\n")
        return path

    def run(self, table, *options):
        """{policy: {column: number}}"""
        done = subprocess.run([self.program, "run", "--networks", table, *map(str, options)],
                              capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"masa: {' '.join(map(str, options))}: {done.stderr.strip()}")
        return {row.pop("policy"): {name: float(value) for name, value in row.items()}
                for row in csv.DictReader(io.StringIO(done.stdout))}

    def compare(self, table, *options, others=OTHERS, ours=tuple(OURS)):
        found = self.run(table, "--policy", ",".join(others), "--divide-disk", *options) if others else {}
        for name in ours:
            policy, more = OURS[name]
            found[name] = self.run(table, "--policy", policy, "--divide-disk", *options, *more)[policy]
        return found


def mean(results, column="mean_response_ns"):
    return statistics.mean(result[column] for result in results) / 1e9


def plain(names):
    return [name.split("<")[0] for name in names]


def memory_of(names, share, inputs=1):
    """A share of the weights, but what the largest layer needs and a tenth at least."""
    return round(max(share * networks.weight_bytes(names), 1.1 * networks.largest(names, inputs)))


def instance(seed, workers):
    """Two networks of four layers; memory: the largest layer and 6 units (of load, of time and of memory alike)."""
    rng = random.Random(seed)
    layers = [[[rng.randint(1, 10), rng.randint(1, 10), rng.randint(1, 5)] for _ in range(4)] for _ in range(2)]
    most = max(load + activations for network in layers for load, _, activations in network)
    return {"workers": workers, "memory": most + 6, "networks": layers}


def instance_rows(case):
    yield networks.HEAD
    for name, layers in zip("ab", case["networks"]):
        for load, compute, activations in layers:
            yield f"{name},0,{load * MILLION},{compute * MILLION},{activations * MILLION},0,0"


def optima(cases):
    python = ROOT / ".deps/ortools/bin/python"
    if not python.exists():
        raise SystemExit("masa: no CP-SAT: scripts/setup --with-ortools")
    done = subprocess.run([python, HERE / "tasks/masa_optimum.py"], input=json.dumps(cases), capture_output=True,
                          text=True, check=True)
    return json.loads(done.stdout)


def optimality(simulator, options):
    policies = ("masa", "masa-ordered", "masa-code", "lookahead")
    rows = []
    for workers in 1, 2, 3, 4:
        cases = [instance(options.seed + number, workers) for number in range(options.instances)]
        ratios, over, checked, unproven = collections.defaultdict(list), collections.Counter(), 0, 0
        for number, (case, best) in enumerate(zip(cases, optima(cases))):
            if best is None:
                unproven += 1
                continue
            machine = ("--memory", case["memory"] * MILLION, "--disk", 10 ** 9, "--workers", workers)
            table = simulator.write(instance_rows(case))
            found = simulator.run(table, "--policy", ",".join(policies), *machine, "--paging", 0, "--jobs", 1,
                                  "--objective", "makespan", "--private")
            for policy, result in found.items():
                ratios[policy].append(result["end_ns"] / MILLION / best)
                over[policy] += result["over_commits"] > 0
            if number < options.check:
                exact = subprocess.run([simulator.program, "exact", "--networks", table, *map(str, machine)],
                                       capture_output=True, text=True, check=True).stdout.split()[1]
                if int(exact) != best * MILLION:
                    raise SystemExit(f"masa: two optima of instance {number}: {best} and {exact}")
                checked += 1
        for policy in policies:
            rows.append({"workers": workers, "policy": policy, "instances": len(ratios[policy]),
                         "mean": f"{statistics.mean(ratios[policy]):.3f}", "worst": f"{max(ratios[policy]):.3f}",
                         "memory exceeded in": over[policy]})
        print(f"masa: {workers} workers: {unproven} not proven, {checked} checked by branch and bound", file=sys.stderr)
    return rows


def _row(head, found, columns=("mean_response_ns", "bytes_read", "over_commits")):
    for policy, results in found.items():
        row = {**head, "policy": policy, "mean s": f"{mean(results):.2f}"}
        if "p95" in columns:
            row["p95 s"] = f"{mean(results, 'p95_response_ns'):.2f}"
        row["GB read"] = f"{statistics.mean(r['bytes_read'] for r in results) / 1e9:.1f}"
        row["over-commits"] = round(sum(r["over_commits"] for r in results))
        yield row


def deterministic(simulator, options):
    rows = []
    for name, members in JOBS.items():
        table = simulator.write(networks.rows(members))
        for share in 1, 0.5, 0.25:
            found = simulator.compare(table, "--memory", memory_of(members, share), "--disk", options.disk,
                                      "--workers", options.workers, "--jobs", 10, "--interval", 1000)
            head = {"job": name, "memory": f"{share:.0%}", "MB": memory_of(members, share) // MILLION}
            rows += _row(head, {policy: [result] for policy, result in found.items()})
    return rows


def stochastic(simulator, options):
    rows, members = [], tuple(networks.NETWORKS)
    table = simulator.write(networks.rows(members))
    for scenario in "one-as-printed", "one", "three", "subset", "geometric":
        for share in 1, 0.5, 0.25:
            for rho in (1.0,) if scenario == "one-as-printed" else (0.8, 1.0, 1.2):
                found = collections.defaultdict(list)
                for seed in range(options.seeds):
                    for policy, result in simulator.compare(
                            table, "--memory", memory_of(members, share), "--disk", options.disk, "--workers",
                            options.workers, "--scenario", scenario, "--rho", rho, "--jobs", options.jobs,
                            "--seed", options.seed + seed, others=("masa", "masa-code", "bulk", "deepeye")).items():
                        found[policy].append(result)
                rows += _row({"scenario": scenario, "memory": f"{share:.0%}", "rho": rho}, found)
                print(f"masa: {scenario} {share} {rho}", file=sys.stderr)
    return rows


def cascades(simulator, options):
    rows = []
    cases = {"Masa": ("masa", "ignore", ()), "Masa, CA-wait": ("masa", "wait", ()),
             "Masa, CA-preempt": ("masa", "preempt", ()),
             "lookahead, CA-wait": ("lookahead", "wait", OURS["lookahead, reader"][1]),
             "lookahead, CA-preempt": ("lookahead", "preempt", OURS["lookahead, reader"][1]),
             "lookahead, CA-prefetch": ("lookahead", "prefetch", OURS["lookahead, reader"][1])}
    for name, members in {"light": LIGHT, "heavy": HEAVY}.items():
        table = simulator.write(networks.rows(plain(members)))
        for tenths in range(0, 11):
            for label, (policy, cascade, more) in cases.items():
                result = simulator.run(
                    table, "--policy", policy, "--cascade", cascade, "--members", ",".join(members), "--memory",
                    memory_of(plain(members), options.share), "--disk", options.disk, "--workers", options.workers,
                    "--divide-disk", "--jobs", 20, "--interval", 1000, "--probability", tenths / 10, *more)[policy]
                rows.append({"job": name, "p": tenths / 10, "policy": label,
                             "mean s": f"{result['mean_response_ns'] / 1e9:.2f}",
                             "CPU s": f"{result['compute_ns'] / 1e9:.1f}",
                             "of it wasted": f"{result['wasted_ns'] / 1e9:.1f}",
                             "GB read": f"{result['bytes_read'] / 1e9:.1f}"})
    return rows


def batching(simulator, options):
    rows, members = [], ("facenet", "tinyyolo")
    table = simulator.write(networks.rows(members))
    for inputs in 1, 2, 4, 8, 16, 32:
        memory = max(options.batch_memory * MILLION, memory_of(members, 0.25, inputs))
        for label, jobs, each in (("1 x n", 1, inputs), ("n x 1", inputs, 1)):
            found = simulator.compare(table, "--memory", memory, "--disk", options.disk, "--workers", options.workers,
                                      "--jobs", jobs, "--inputs", each, "--interval", "0.000001",
                                      others=("masa", "masa-ordered", "bulk"))
            for policy, result in found.items():
                rows.append({"n": inputs, "jobs x inputs": label, "policy": policy, "MB": memory // MILLION,
                             "s per input": f"{result['end_ns'] / 1e9 / inputs:.3f}",
                             "GB read": f"{result['bytes_read'] / 1e9:.2f}",
                             "over-commits": round(result["over_commits"])})
    return rows


def estimates(simulator, options):
    rows = []
    table = simulator.write(networks.rows(("agenet",)))
    for factor in 0.5, 0.75, 1, 1.25, 1.5:
        found = simulator.compare(table, "--memory", memory_of(("agenet",), 1), "--disk", options.disk, "--workers",
                                  options.workers, "--members", ",".join(["agenet"] * 6), "--jobs", min(20, options.jobs), "--interval",
                                  1000, "--estimate", factor, others=("masa", "masa-code"))
        rows += _row({"estimate": factor}, {policy: [result] for policy, result in found.items()})
    return rows


def arrivals(simulator, options):
    rows, members = [], tuple(networks.NETWORKS)
    table = simulator.write(networks.rows(members))
    for spacing in "constant", "normal", "poisson", "pareto":
        found = collections.defaultdict(list)
        for seed in range(options.seeds):
            for policy, result in simulator.compare(
                    table, "--memory", memory_of(members, options.share), "--disk", options.disk, "--workers",
                    options.workers, "--scenario", "one", "--spacing", spacing, "--rho", 0.8, "--jobs", options.jobs,
                    "--seed", options.seed + seed, others=("masa", "masa-code", "bulk")).items():
                found[policy].append(result)
        rows += _row({"arrivals": spacing}, found, columns=("p95",))
    return rows


EXPERIMENTS = {"optimality": optimality, "deterministic": deterministic, "stochastic": stochastic,
               "cascades": cascades, "batching": batching, "estimates": estimates, "arrivals": arrivals}


def markdown(rows, options):
    commit = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True,
                            check=False).stdout.strip()
    lines = [f"## {options.experiment}", "",
             f"Commit {commit}, `bench/masa.py {' '.join(sys.argv[1:])}`, a simulation on {platform.machine()}.", "",
             "| " + " | ".join(rows[0]) + " |", "|" + ":--|" * len(rows[0])]
    lines += ["| " + " | ".join(str(value) for value in row.values()) + " |" for row in rows]
    return "\n".join(lines) + "\n\n"


def plot(rows, path):
    """A line for each policy over the rows of the others' columns, in their order."""
    try:
        import matplotlib
    except ImportError:
        print("masa: no matplotlib (scripts/setup --with-plots): nothing is drawn", file=sys.stderr)
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot
    value = next(name for name in ("mean s", "s per input", "mean") if name in rows[0])
    head = [name for name in list(rows[0])[:list(rows[0]).index(value)] if name not in ("policy", "instances", "MB")]
    lines = collections.defaultdict(list)
    for row in rows:
        lines[row["policy"]].append((" ".join(str(row[name]) for name in head), float(row[value])))
    figure, axes = pyplot.subplots(figsize=(10, 5))
    for policy, points in lines.items():
        axes.plot([at for at, _ in points], [y for _, y in points], marker="o", markersize=3, label=policy)
    axes.set(ylabel=value, yscale="log")
    axes.tick_params(axis="x", rotation=90)
    axes.grid(True, which="both", alpha=0.2)
    axes.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", choices=EXPERIMENTS)
    parser.add_argument("--instances", type=int, default=500, help="optimality: how many for each number of workers")
    parser.add_argument("--check", type=int, default=20, help="optimality: so many also by branch and bound")
    parser.add_argument("--disk", default="90M", help="bytes a second (an SD card)")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--share", type=float, default=0.5, help="memory by weights: cascades, arrivals")
    parser.add_argument("--batch-memory", type=int, default=300, help="batching: MB")
    parser.add_argument("--jobs", type=int, default=150, help="stochastic, arrivals")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--simulator", type=Path, default=ROOT / "build/release/bin/swapnet-sched-sim")
    parser.add_argument("--output", type=Path, help="append the table to this file")
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--publish", metavar="STEM", help="--csv STEM-EXPERIMENT.csv and --plot STEM-EXPERIMENT.svg")
    options = parser.parse_args()
    if options.publish:
        options.csv = options.csv or Path(f"{options.publish}-{options.experiment}.csv")
        options.plot = options.plot or Path(f"{options.publish}-{options.experiment}.svg")
    return options


def main():
    options = parse()
    if not options.simulator.exists():
        raise SystemExit("masa: scripts/build release swapnet-sched-sim")
    with tempfile.TemporaryDirectory() as where:
        rows = EXPERIMENTS[options.experiment](Simulator(options.simulator, where), options)
    text = markdown(rows, options)
    if options.output:
        with options.output.open("a", encoding="utf-8") as output:
            output.write(text)
    else:
        print(text, end="")
    if options.csv:
        with options.csv.open("w", newline="", encoding="utf-8") as to:
            writer = csv.DictWriter(to, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    if options.plot:
        plot(rows, options.plot)


main()
