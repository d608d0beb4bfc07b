#!/usr/bin/env python3
"""The scenarios of SwapNet's section 8.1.1: several DNNs, each its own process, in one budget. See README.md."""
import argparse
import json
import math
import os
import signal
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parent / "lib"))

import bandwidth
import bench_cgroup as cgroup
import facts as measuring
import plan
import pythons
import results
import slow_disk
import table
import variants
import weights_file
from child import OUT_OF_MEMORY
from fleet import Daemon, Fleet
from options import add_output, list_of
from sampler import Sampler
from table import mib, number, same_bits

# Names of DNNs and their models, and the MiB that all weights together get.
SCENARIOS = {
    "self-driving": (843, (("YOLOv3", "yolov3"), ("FCN", "fcn_resnet101"), ("VGG-19", "vgg19"),
                           ("ResNet-101", "resnet101"))),
    "rsu": (1088, (("YOLOv3-a", "yolov3"), ("YOLOv3-b", "yolov3"), ("ResNet-101-a", "resnet101"),
                   ("ResNet-101-b", "resnet101"), ("VGG-19", "vgg19"))),
    "uav": (325, (("YOLOv3", "yolov3"), ("ResNet-101", "resnet101"))),
}
POLICIES = ("equal", "eq1", "minmax")
SUFFICIENT, MMAP, CONTROL = "sufficient memory", "mmap", "not enforced"
VARIANTS = (SUFFICIENT, MMAP, *POLICIES, CONTROL)
CONTROL_POLICY = "eq1"
# A camera delivers the next frame after so many times what an inference takes with sufficient
# memory; by then the one before has to be done.
PERIOD = 1.5
GOAL = 1.062  # SwapNet: 6.2 % on average
COLUMNS = ("variant", "model", "MiB", "budget", "latency ms", "x sufficient", "limit", "x limit",
           "waited ms", "missed", "read/pass", "peak", "allowed", "same bits", "note")


def progress(text):
    print(f"scenario: {text}", file=sys.stderr, flush=True)


@dataclass
class Config(variants.Setup):
    scenarios: list
    variants: list
    rounds: int
    slot: float
    warm_up: float
    timeout: float
    json: str | None
    markdown: bool
    disk: int | None = None     # MB/s that all reads together are held to


def interrupt_ticks():
    """What each CPU has spent on interrupts so far."""
    with open("/proc/stat", encoding="ascii") as file:
        rows = [line.split() for line in file if line.startswith("cpu") and line[3].isdigit()]
    return {int(row[0][3:]): int(row[6]) + int(row[7]) for row in rows}


def share_cpus(count):
    """Which CPUs each of `count` DNNs runs on: disjoint ones while there are enough (SwapNet
    6.2.1), else in turn. Those that take most interrupts come first: a disk with one interrupt
    takes up to a sixth of a CPU's time, and the first DNN reads in nearly all variants."""
    ticks = interrupt_ticks()
    cpus = sorted(os.sched_getaffinity(0), key=lambda cpu: (-ticks.get(cpu, 0), cpu))
    each = max(1, len(cpus) // count)
    to_and_fro = cpus + cpus[::-1]  # those that are shared are the ones with the fewest
    return [[to_and_fro[(i * each + k) % len(to_and_fro)] for k in range(each)] for i in range(count)]


class Scenario:
    """One scenario with all its variants alive at once; slots of each follow one another."""

    def __init__(self, config, name, sampler, group_kind):
        self.config, self.name = config, name
        self.sampler, self.group_kind = sampler, group_kind
        weights_mib, self.names = SCENARIOS[name]
        self.weights_mib = weights_mib
        self.cpus = share_cpus(len(self.names))
        self.config.threads = len(self.cpus[0])
        self.models = sorted({model for _, model in self.names})
        self.weights = self._own_weights()
        self.control = None
        self.facts, self.fleets, self.daemons, self.budgets = {}, {}, {}, {}
        self.bandwidths = []
        self.periods = {}

    def _own_weights(self):
        """By DNN: one that maps another one's file would find what that has read in the page cache."""
        found = {}
        for name, model in self.names:
            shared = self.config.weights(model)
            found[name] = shared if shared not in found.values() else self.config.weights(name)
        return found

    def measure(self):
        for model in self.models:
            progress(f"{self.name}: measuring {model}")
            found, _ = measuring.measure(self.config, model, self.config.weights(model))
            measuring.warm_libraries(self.config, model)
            self.facts[model] = measuring.with_base(found, self.config, self.sampler,
                                                    self.group_kind, model, self.config.timeout)
        for name, model in self.names:
            if self.weights[name] != self.config.weights(model):
                weights_file.copy(self.config.weights(model), self.weights[name])
        facts = [self.facts[model] for _, model in self.names]
        self.total = self.weights_mib * plan.MIB + sum(
            f.activation_bytes + f.weight_bytes - f.streamable_bytes for f in facts)
        self.base = sum(f.base_bytes for f in facts)
        self.allowed = self.total + len(facts) * plan.SLACK_BYTES  # beyond base
        self.limit = self.base + self.allowed + max(f.file_bytes for f in facts)

    def _start(self, variant):
        progress(f"{self.name}: {variant}: building")
        title = f"{self.name}-{variant.replace(' ', '-')}"
        limit = None if variant == SUFFICIENT else self.limit
        kind, env = variants.PLAIN, None
        if variant == MMAP:
            kind = variants.MMAP
            for path in self.weights.values():
                weights_file.drop_page_cache(path)
        elif variant in (*POLICIES, CONTROL):
            kind = variants.SWAPNET
            policy = CONTROL_POLICY if variant == CONTROL else variant
            self.daemons[variant] = Daemon(self.config.library, self.total, policy)
            env = self.daemons[variant].env | ({"SWAPNET_ENFORCE": "0"} if variant == CONTROL else {})
        measuring.warm_libraries(self.config, self.models[0])
        group = self.group_kind(f"swapnet-bench-{title}", limit)
        fleet = Fleet(self.config, title, kind, self.names, self.weights, group, self.sampler,
                      self.config.timeout, self.cpus, env)
        self.fleets[variant] = fleet
        latencies = fleet.together(lambda dnn: dnn.without_pause(self.config.warm_up))
        for dnn in fleet.dnns:
            if dnn.ended:
                progress(f"{self.name}: {variant}: {dnn.name}: {dnn.ended}\n"
                         f"{dnn.worker.log_tail()}".rstrip())
        if variant == SUFFICIENT and any(dnn.ended for dnn in fleet.dnns):
            raise SystemExit("scenario: a plain program ended; there is nothing to compare with")
        if variant == SUFFICIENT:
            self.periods = {name: PERIOD * statistics.median(found[len(found) // 3:])
                            for name, found in latencies.items()}

    def _run_control(self):
        """Without enforcement they must not get through: else the limit, and the peaks, prove nothing."""
        self._start(CONTROL)
        fleet = self.fleets.pop(CONTROL)
        try:
            ended = [dnn.ended for dnn in fleet.dnns if dnn.ended]
            held = self.sampler.peaks(fleet.group)["held"] if fleet.group.limited else 0
        finally:
            fleet.close()
            self.daemons.pop(CONTROL).close()
        self.control = {
            "scenario": self.name, "variant": CONTROL, "dnn": "all",
            "over_base_bytes": held - self.base if held else None, "allowed_bytes": self.allowed,
            "killed": sum(end == OUT_OF_MEMORY for end in ended),
            "note": ", ".join(f"{ended.count(end)} of {len(fleet.dnns)}: {end}" for end in sorted({*ended}))}

    def run(self):
        self.measure()
        if CONTROL in self.config.variants:
            self._run_control()
        wanted = [SUFFICIENT, *(v for v in self.config.variants if v not in (SUFFICIENT, CONTROL))]
        for variant in wanted:
            self._start(variant)
        for number in range(self.config.rounds):
            self.bandwidths.append(bandwidth.measure(self.config.weights(self.names[0][1]), self.config.library))
            for fleet in self.fleets.values():
                fleet.together(lambda dnn: dnn.every(self.periods[dnn.name], self.config.slot))
            progress(f"{self.name}: round {number + 1} of {self.config.rounds}: " + ", ".join(
                f"{variant} {_text(self._mean_ratio(variant), '.2f')}" for variant in self.fleets))
        for variant, daemon in self.daemons.items():
            self.budgets[variant] = daemon.budgets()
            self.fleets[variant].quit()

    def close(self):
        for fleet in self.fleets.values():
            fleet.close()
        for daemon in self.daemons.values():
            daemon.close()
        for path in self.weights.values():
            weights_file.remove(path)

    # --- results ---

    def _plain(self, dnn):
        return next(p for p in self.fleets[SUFFICIENT].dnns if p.name == dnn.name)

    def _ratio(self, dnn):
        plain, latency = self._plain(dnn).latency(), dnn.latency()
        return latency / plain if plain and latency else None

    def _mean_ratio(self, variant):
        """None when one DNN has no result: a mean of the others would flatter."""
        ratios = [self._ratio(dnn) for dnn in self.fleets[variant].dnns]
        return None if None in ratios else statistics.mean(ratios)

    def _budget(self, variant, dnn):
        return self.budgets.get(variant, {}).get(dnn.worker.pid)

    def _missing(self, variant, dnn):
        """Bytes that its budget does not hold, to be read in each pass."""
        return plan.missing(self.facts[dnn.model], self._budget(variant, dnn))

    def _limit(self, variant, dnn):
        """How many times its latency with sufficient memory the disk allows it, layer by layer, of
        which the others take what they miss once in every period: BW is what they leave."""
        latency = self._plain(dnn).latency()
        fleet = self.fleets[variant].dnns
        if not latency or not all(self._budget(variant, other) for other in fleet):
            return None
        others = sum(self._missing(variant, other) / self.periods[other.name]
                     for other in fleet if other is not dnn)
        left = statistics.median(self.bandwidths) - others
        if left <= 0:
            return math.inf if self._missing(variant, dnn) else 1.0
        return plan.layered_limit_seconds(latency, self.facts[dnn.model],
                                          self._budget(variant, dnn), left) / latency

    def rows(self):
        for variant, fleet in self.fleets.items():
            found = [self._row(variant, dnn) for dnn in fleet.dnns]
            yield from found
            yield self._summary(variant, found)
        if self.control:
            yield self.control

    def _row(self, variant, dnn):
        label = f"{self.fleets[variant].title}-{dnn.name}"
        stats = (results.read_stats(variants.stats_file(self.config, label))
                 if variant in POLICIES else None)
        expected = self._plain(dnn).hashes
        passes = stats["passes"] if stats else 0
        return {
            "scenario": self.name, "variant": variant, "dnn": dnn.name,
            "weight_bytes": self.facts[dnn.model].weight_bytes,
            "budget_bytes": self._budget(variant, dnn),
            "latency_s": dnn.latency(), "latencies_s": dnn.latencies,
            "period_s": self.periods[dnn.name],
            "ratio": None if variant == SUFFICIENT else self._ratio(dnn),
            "limit_ratio": self._limit(variant, dnn),
            "waited_s": stats["stall_ns"] / passes / 1e9 if passes else None,
            "released": dnn.released, "missed": dnn.missed,
            "read_per_pass": dnn.read_per_pass(),
            "same_bits": all(h == expected.get(i) for i, h in dnn.hashes.items())
                         if dnn.hashes else None,
            "note": dnn.ended or "", "stats": stats}

    def _summary(self, variant, found):
        group = self.fleets[variant].group
        held = self.sampler.peaks(group)["held"] if group.limited else 0  # else of one process
        limits = [row["limit_ratio"] for row in found]
        worst = max(row["ratio"] or 0 for row in found)
        return {
            "scenario": self.name, "variant": variant, "dnn": "all",
            "weight_bytes": sum(row["weight_bytes"] for row in found),
            "budget_bytes": self.total if variant in POLICIES else None,
            "latency_s": None,
            "ratio": None if variant == SUFFICIENT else self._mean_ratio(variant),
            "worst_ratio": worst,
            "limit_ratio": None if None in limits else statistics.mean(limits),
            "waited_s": None,
            "released": sum(row["released"] for row in found),
            "missed": sum(row["missed"] for row in found), "read_per_pass": None,
            "same_bits": all(row["same_bits"] for row in found),
            "over_base_bytes": held - self.base if held else None,
            "allowed_bytes": None if variant == SUFFICIENT else self.allowed,
            "note": "" if variant == SUFFICIENT else f"worst {worst:.2f}"}


def _distance(row):
    """How many times the limit it takes; None where there is none."""
    return row["ratio"] / row["limit_ratio"] if row.get("ratio") and row.get("limit_ratio") else None


def _text(value, form):
    return "-" if value is None else format(value, form)


def _cells(row):
    latency, waited, released = row.get("latency_s"), row.get("waited_s"), row.get("released")
    return (row["variant"], row["dnn"], mib(row.get("weight_bytes")), mib(row.get("budget_bytes")),
            number(latency and latency * 1e3, ".0f"), number(row.get("ratio"), ".3f"),
            number(row.get("limit_ratio"), ".3f"), number(_distance(row), ".3f"),
            number(waited and waited * 1e3, ".0f"),
            number(row["missed"] / released if released else None, ".0%"),
            mib(row.get("read_per_pass")), mib(row.get("over_base_bytes")), mib(row.get("allowed_bytes")),
            same_bits(row.get("same_bits")), row["note"])


def _means(rows):
    return {row["variant"]: row for row in rows if row["dnn"] == "all" and row["variant"] in POLICIES}


def verdict(rows):
    """(text, whether it falls short) of the best allocator's mean: the goal counts where the disk allows it, else how far
    it is to that."""
    means = _means(rows)
    if not means:
        return "no allocator ran", False
    best = min((row["ratio"] for row in means.values() if row["ratio"]), default=None)
    limit = min((row["limit_ratio"] for row in means.values() if row["limit_ratio"]), default=None)
    text = (f"the best allocator takes {_text(best, '.3f')} of sufficient memory (goal {GOAL}; the disk allows "
            f"{_text(limit, '.3f')}); "
            + ", ".join(f"{p}: {_text(_distance(row), '.3f')} of what it allows" for p, row in means.items()))
    return text, best is None or best > GOAL and (limit is None or limit <= GOAL)


def _worst_shortfalls(means):
    worst = {p: row["worst_ratio"] for p, row in means.items() if row["ratio"]}
    if "minmax" in worst and worst["minmax"] > min(worst.values()) * 1.01:
        yield ("minmax is not the best for the slowest: "
               + ", ".join(f"{p} {r:.3f}" for p, r in worst.items()))


def _control_shortfalls(row, limited):
    over = (row["over_base_bytes"] or 0) - row["allowed_bytes"]
    if limited and not row["killed"] and over <= 0:
        yield f"{CONTROL}: nothing was killed, and the peak is {-over / plan.MIB:.0f} MiB below what is allowed"


def shortfalls(rows, limited=True):
    """What a reader of the table should not have to find. limited: there were hard limits."""
    if not limited:
        yield "no memory limit could be set: what they took was not judged"
    means, (text, falls_short) = _means(rows), verdict(rows)
    yield from [text] if falls_short else []
    yield from _worst_shortfalls(means)
    for row in rows:
        if row["variant"] in POLICIES and not row["same_bits"]:
            yield f"{row['variant']}: {row['dnn']}: other bits, or no result"
    for variant, row in means.items():
        excess = (row["over_base_bytes"] or 0) - row["allowed_bytes"]
        if excess > 0:
            yield f"{variant}: peak is {excess / plan.MIB:.0f} MiB over base + total + 32 MiB for each DNN"
    for row in rows:
        if row["variant"] == CONTROL:
            yield from _control_shortfalls(row, limited)


def parse(argv=None):
    parser = argparse.ArgumentParser(
        prog="bench/scenario.py", description="Several DNNs in one budget: sufficient memory, "
        "memory-mapped weights, and swapnet with each way to divide the budget. The exit status is 1 if something "
        "falls short of its goal.")
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO",
                        help=f"of {', '.join(SCENARIOS)}; default: all")
    parser.add_argument("--variants", type=list_of(VARIANTS), default=list(VARIANTS), metavar="A,B",
                        help=f"of {', '.join(VARIANTS)}; the first always runs")
    parser.add_argument("--rounds", type=int, default=4, help="slots of each variant; default: 4")
    parser.add_argument("--slot", type=float, default=9, help="seconds of a slot; default: 9")
    parser.add_argument("--warm-up", type=float, default=20, help="seconds before; default: 20")
    parser.add_argument("--timeout", type=float, default=120,
                        help="seconds to wait for one inference; default: 120")
    add_output(parser)
    parser.add_argument("--python", help="interpreter with torch; default: this or the system's")
    args = parser.parse_args(argv)
    unknown = [name for name in args.scenarios if name not in SCENARIOS]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(SCENARIOS)}")
    if args.rounds < 1 or args.slot <= 0 or args.warm_up <= 0:
        parser.error("--rounds, --slot and --warm-up are more than 0")
    return Config(
        scenarios=args.scenarios or list(SCENARIOS), variants=args.variants, rounds=args.rounds,
        slot=args.slot, warm_up=args.warm_up, timeout=args.timeout, threads=None,
        python=pythons.with_torchvision(args.python), library=args.library.resolve(),
        out=args.dir.resolve(), json=args.json, markdown=args.markdown, disk=args.disk)


def main():
    config = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    config.out.mkdir(parents=True, exist_ok=True)
    slow_disk.throttle(config.out, config.disk)
    if not config.library.exists():
        raise SystemExit(f"scenario: {config.library} is not built: run scripts/build first")
    group_kind, no_limit = cgroup.find()
    if no_limit:
        progress(f"{no_limit}: every variant runs WITHOUT a memory limit")
    sampler, document, short = Sampler(), [], []
    for name in config.scenarios:
        scenario = Scenario(config, name, sampler, group_kind)
        try:
            scenario.run()
            rows = list(scenario.rows())
        finally:
            scenario.close()
        speed = statistics.median(scenario.bandwidths)
        weights = sum(scenario.facts[model].weight_bytes for _, model in scenario.names)
        print(f"\n{name}: {weights / plan.MIB:.0f} MiB of weights in {scenario.weights_mib} MiB; "
              f"disk {speed / 1e6:.0f} MB/s; a job every {PERIOD} times its latency with "
              "sufficient memory")
        cells = [_cells(row) for row in rows]
        grid = table.markdown_grid if config.markdown else table.grid
        print(grid(COLUMNS, cells))
        print(verdict(rows)[0], flush=True)
        missed = list(shortfalls(rows, group_kind.limited))
        for line in missed:
            progress(f"falls short: {name}: {line}")
        short += missed
        document.append({"scenario": name, "weights_mib": scenario.weights_mib,
                         "total_bytes": scenario.total, "limit_bytes": scenario.limit,
                         "bandwidth": speed, "limited": group_kind.limited, "rows": rows,
                         "shortfalls": missed})
    if config.json:
        Path(config.json).write_text(json.dumps({"schema": 1, "disk_mb_per_s": config.disk, "scenarios": document},
                                                indent=1))
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
