#!/usr/bin/env python3
"""Language models that generate within a budget: tokens per second against the bound, memory-mapped weights and accelerate.
See README.md.

    python3 bench/generate.py --models smollm_360m --points 50,75 --threads 1

The bound of a token is max(beside, (e - r) / BW), as README.md has it for a pass: each token is one. All variants take
turns, an answer of each in a round; the first answers are not measured. The exit status is 1 if an answer has other bits
than the plain program's."""
import json
import os
import signal
import statistics
import sys
from pathlib import Path

sys.path[1:1] = [str(Path(__file__).resolve().parent / part) for part in ("language", "lib")]

import bandwidth
import bench_cgroup as cgroup
import config
import language_names
import options
import plan
import runs
import table
from child import Ended
from plan import MIB
from sampler import Sampler

MODELS = ("smollm_360m",)
WARM_UP = 2  # answers, each token of which is a pass
SLOW = (runs.MMAP, runs.ACCELERATE)  # asked in every second round
BANDWIDTH_BYTES = 256 * MIB
VARIANTS = (runs.BESIDE, runs.SWAPNET, runs.MMAP, runs.ACCELERATE)
COLUMNS = ("model", "budget", "MiB", "variant", "tokens/s", "ms/token", "x plain", "BW bound ms", "x bound",
           "x bound, paired", "CPU ms/token", "read MiB/token", "prompt ms", "peak MiB", "same bits", "note")


class Lane:
    """One variant, and what it was asked."""

    def __init__(self, variant, group, run, worker):
        self.variant, self.group, self.run, self.worker = variant, group, run, worker
        self.answers, self.ended = [], None

    def await_model(self):
        self._guard(lambda: self.run.await_model(self.worker))
        return self

    def _guard(self, ask):
        if self.ended:
            return None
        try:
            return ask()
        except Ended as end:
            self.ended = str(end)
            runs.say(f"{self.variant}: {end}")
            return None

    def same_bits(self, plain):
        expected = {answer["index"]: answer["hash"] for answer in plain.answers}
        return all(answer["hash"] == expected[answer["index"]] for answer in self.answers) if self.answers else None

    def ask(self, index, sampler, keep):
        sampler.watch(self.group)
        answer = self._guard(lambda: self.worker.infer(index, runs.TIMEOUT_SECONDS))
        sampler.watch(None)
        if answer and keep:
            self.answers.append({**answer, "index": index})
        if answer:
            self.worker.wait_until_quiet()

    def of_token(self, what):
        """Medians of answers, of their tokens but the first."""
        return [statistics.median(answer[what][1:]) for answer in self.answers]

    def pairs(self, other):
        """Seconds of a token, its own and the other one's in the same round."""
        theirs = dict(zip((answer["index"] for answer in other.answers), other.of_token("token_seconds")))
        return [(seconds, theirs[answer["index"]])
                for answer, seconds in zip(self.answers, self.of_token("token_seconds")) if answer["index"] in theirs]

    def median(self, what):
        return statistics.median(self.of_token(what)) if self.answers else None

    def mean_bytes(self):
        values = [value for answer in self.answers for value in answer["token_bytes"][1:]]
        return statistics.mean(values) if values else None


class Bench:
    def __init__(self, args):
        self.args, self.sampler, self.rows = args, Sampler(), []
        self.lanes = []
        self.group_kind, self.no_limit = cgroup.find()

    def measure(self, run):
        """Sizes; and what the plain program needs besides its tensors, if they are not mapped."""
        group = self.group_kind(f"swapnet-generate-{run.model}")
        worker = run.start(runs.PLAIN, "measure", group=group, more=["--measure"])
        self.sampler.watch(group)
        for index in range(2):
            worker.infer(index, runs.TIMEOUT_SECONDS)
        self.sampler.watch(None)
        run.end(worker)
        found = run.facts
        tensors = found["weight_bytes"] + found["activation_bytes"]
        return plan.Facts(found["weight_bytes"], found["streamable_bytes"], found["activation_bytes"], tensors,
                          base_bytes=self.sampler.peaks(group)["anon"] + found["mapped_bytes"] - tensors)

    def start(self, run, variant, facts, point):
        budget = plan.budget(facts, point)
        more, limit = [], None
        if variant == runs.BESIDE:
            helper = self.args.library.parent / "libbench-beside.so"
            more = ["--bytes", str(plan.missing(facts, budget)), "--helper", str(helper)]
        else:
            limit = plan.cgroup_limit(facts, budget)
        if variant == runs.ACCELERATE:
            more = ["--bytes", str(budget - facts.activation_bytes)]
        group = self.group_kind(f"swapnet-generate-{run.model}-{variant}", limit)
        return Lane(variant, group, run, run.begin(variant, f"{point}", budget, group, more))

    def run_model(self, model):
        run = runs.Runs(self.args, model)
        facts = self.measure(run)
        runs.say(f"{model}: weights {runs.mib(facts.weight_bytes)} MiB, other tensors {runs.mib(facts.activation_bytes)}, "
                 f"base {runs.mib(facts.base_bytes)}")
        group = self.group_kind(f"swapnet-generate-{model}-plain")
        plain = Lane(runs.PLAIN, group, run, run.start(runs.PLAIN, "plain", group=group))
        try:
            for point in self.args.points:
                self.run_point(run, facts, point, plain)
        finally:
            self.close()
            plain.worker.close()

    def run_point(self, run, facts, point, plain):
        plain.answers = []
        chosen = [variant for variant in self.args.variants if variant != runs.ACCELERATE or point < 1]
        lanes = [plain, *[self.start(run, variant, facts, point) for variant in chosen]]
        self.lanes = lanes[1:]
        for lane in self.lanes:
            lane.await_model()
        shard, measured = sorted(run.checkpoint.glob("*.safetensors"))[0], []
        for number in range(WARM_UP + self.args.rounds):
            keep = number >= WARM_UP
            if keep:
                measured.append(bandwidth.measure(shard, self.args.library, BANDWIDTH_BYTES))
            for lane in lanes if number % 2 else lanes[::-1]:
                if lane.variant not in SLOW or number % 2:
                    lane.ask(number, self.sampler, keep)
            runs.say(f"{run.model} at {plan.point_name(point)}: round {number}: " + ", ".join(
                f"{lane.variant} {lane.median('token_seconds') * 1e3:.0f} ms" for lane in lanes if lane.answers))
        stats = {}
        for lane in self.lanes:
            stats |= {} if lane.ended else run.end(lane.worker)
        self.close()
        for lane in lanes:
            self.rows.append(self.row(run, facts, point, lane, lanes, statistics.median(measured), stats))
            runs.say("generate: " + "  ".join(cells(self.rows[-1])))

    def close(self):
        for lane in self.lanes:
            lane.worker.close()
        self.lanes = []

    def row(self, run, facts, point, lane, lanes, speed, stats):
        budget = plan.budget(facts, point)
        plain, seconds = lanes[0], lane.median("token_seconds")
        beside = next((other for other in lanes if other.variant == runs.BESIDE), None)
        compared = seconds and lane not in (plain, beside)
        floor = plan.missing(facts, budget) / speed
        pairs = lane.pairs(beside) if compared and beside else []
        return {"model": run.model, "point": plan.point_name(point), "budget_bytes": budget, "variant": lane.variant,
                "token_s": seconds, "cpu_s": lane.median("token_cpu"), "plain_s": plain.median("token_seconds"),
                "beside_s": beside and beside.median("token_seconds"), "bandwidth": speed, "floor_s": floor,
                "of_bound": seconds / max(floor, beside.median("token_seconds")) if pairs else None,
                "paired": statistics.median(ours / max(floor, theirs) for ours, theirs in pairs) if pairs else None,
                "read_bytes": lane.mean_bytes(), "missing_bytes": plan.missing(facts, budget),
                "prompt_s": statistics.median(answer["token_seconds"][0] for answer in lane.answers) if lane.answers else None,
                "peak_bytes": self.sampler.peaks(lane.group)["held"], "ended": lane.ended,
                "same_bits": lane.same_bits(plain),
                "stats": stats if lane.variant == runs.SWAPNET else None, "answers": lane.answers}


def ms(value):
    return "" if value is None else f"{value * 1e3:.0f}"


def ratio(value):
    return "" if value is None else f"{value:.2f}"


def cells(row):
    seconds = row["token_s"]
    return [row["model"], row["point"], f"{row['budget_bytes'] / MIB:.0f}", row["variant"],
            f"{1 / seconds:.2f}" if seconds else "", ms(seconds),
            ratio(seconds and seconds / row["plain_s"]), ms(row["floor_s"]), ratio(row["of_bound"]), ratio(row["paired"]),
            ms(row["cpu_s"]), "" if row["read_bytes"] is None else runs.mib(row["read_bytes"]), ms(row["prompt_s"]),
            f"{row['peak_bytes'] / MIB:.0f}", table.same_bits(row["same_bits"]), (row["ended"] or "")[:60]]


def main():
    # Ends through the finally blocks, so that no worker and no cgroup is left behind, and shows what was measured.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    parser = runs.parser_of(__doc__)
    parser.add_argument("--models", type=options.list_of(language_names.NAMES), default=list(MODELS), help="comma-separated")
    parser.add_argument("--points", type=config.parse_points, default=[0.25, 0.5, 0.75, 1.1], help="percent of all weights")
    parser.add_argument("--variants", type=options.list_of(VARIANTS), default=list(VARIANTS), help="beside the plain program")
    parser.add_argument("--compile", action="store_true", help="torch.compile what follows attention in each layer")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    bench = Bench(args)
    if bench.no_limit:
        runs.say(f"{bench.no_limit}: every variant runs WITHOUT a memory limit")
    try:
        for model in args.models:
            bench.run_model(model)
    except KeyboardInterrupt:
        runs.say("interrupted; the table has what was finished")
    print(table.markdown_grid(COLUMNS, list(map(cells, bench.rows))))
    runs.say(f"load average {os.getloadavg()}")
    if args.json:
        args.json.write_text(json.dumps({"rows": bench.rows}, indent=1), encoding="utf-8")
    return 0 if all(row["same_bits"] in (None, True) for row in bench.rows) else 1


if __name__ == "__main__":
    sys.exit(main())
