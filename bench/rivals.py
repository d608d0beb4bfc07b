#!/usr/bin/env python3
"""Other ways to run the same models in little memory, each with a limit around its whole process: the smallest with which it
still answers, its latency there, and its latency where swapnet's smallest, twice and four times that are the limit of all.

    scripts/bench rivals --models vgg19,vit_b_16 --markdown --json build/bench/rivals.json

PyTorch 2.13 runs the models of PyTorch. See rivals/README.md."""
import argparse
import dataclasses
import json
import os
import signal
import statistics
import sys
from pathlib import Path

sys.path[1:1] = [str(Path(__file__).resolve().parent / part) for part in ("rivals", "lib")]

import bench_cgroup as cgroup
import convert
import facts as measuring
import ncnn_model
import pythons
import report
import search
import trial
import variants
import ways
import weights_file
from options import add_output, list_of
from plan import MIB

MODELS = ("resnet152", "vgg19", "vit_b_16", "mobilenet_v2")
KNOWN_MODELS = (*MODELS, "resnet101", "vit_l_32", "squeezenet1_1")
# Inferences of a process that is asked whether it answers, and of one that is timed. Engines allocate in their first ones, and
# swapnet has kept what it keeps after six at most.
TRIED, WARM_UP, TIMED = 4, 8, 4
TIMES_PLAIN = 20    # who is slower than that does not answer
TIMES = (1, 2, 4)   # of swapnet's smallest limit


def progress(text):
    print(f"rivals: {text}", file=sys.stderr, flush=True)


class Rivals:
    """All ways with one model."""

    def __init__(self, setup, args, group_kind, model):
        self.setup, self.args, self.model = setup, args, model
        self.trials = trial.Trials(group_kind, setup.out / f"{model}.rivals.log", args.patience, TIMES_PLAIN)
        self.found, self.runs = {}, {way: {} for way in args.ways}
        self.plain, self.weight_bytes = [], 0

    def measure(self):
        try:
            self._prepare()
            first = self._run(ways.PLAIN, None, WARM_UP, TIMED)
            if first.ended:
                raise SystemExit(f"rivals: {self.model}: plain: {first.ended}")
            self.trials.plain_seconds = statistics.median(first.seconds)
            self._take_found()
            for way in self.args.ways:
                if way not in self.found:
                    self._search(way)
            limits = self._limits()
            for number in range(self.args.rounds):
                self._round(limits, number)
            return limits
        finally:
            for path in self.setup.weights(self.model), self.setup.checkpoint(self.model), self.setup.samples(self.model):
                weights_file.remove(path)

    def _prepare(self):
        progress(f"{self.model}: sizes, samples and other engines' forms")
        setup, model = self.setup, self.model
        facts, _ = measuring.measure(setup, model, setup.weights(model), setup.checkpoint(model), setup.samples(model))
        self.weight_bytes = facts.weight_bytes
        with open(setup.checkpoint(model), "rb") as file:
            os.fsync(file.fileno())  # only pages that are clean can be dropped
        if {*self.args.ways} & {*ways.ENGINE_NAMES}:
            convert.make(setup, model)
        if {*self.args.ways} & variants.OF_NCNN.keys():
            ncnn_model.make(setup, model)

    def _run(self, way, limit, warm_up, timed):
        floor = self.found[way].smallest_bytes if way in self.found else None
        start = ways.prepare(self.setup, way, self.model, limit, floor)
        ways.drop_page_cache(start.files)
        outcome = self.trials.run(start, limit, warm_up, timed)
        progress(f"{self.model}: {way}{f' in {limit / MIB:.0f} MiB' if limit else ''}: {_said(outcome)}")
        return outcome

    def _take_found(self):
        """What an earlier run has found with this model."""
        for document in json.loads(self.args.found.read_text(encoding="utf-8"))["models"] if self.args.found else []:
            for way, known in document["ways"].items() if document["model"] == self.model else []:
                self.found[way] = search.Found(known["smallest_bytes"], known["failed_bytes"], known["why"])

    def _search(self, way):
        def attempt(limit):
            return self._run(way, limit, 1, TRIED - 1)
        # Once with all weights in memory: for most ways a little more than that is enough.
        self.found[way] = search.smallest(attempt, self.weight_bytes + 128 * MIB)

    def _limits(self):
        ours = self.found.get(ways.SWAPNET)
        if not ours or not ours.smallest_bytes:
            return []
        return [times * ours.smallest_bytes for times in TIMES]

    def _round(self, limits, number):
        """All ways in turn, at one limit after the other. The plain program without a limit is among them."""
        progress(f"{self.model}: round {number + 1} of {self.args.rounds}")
        self.plain.append(self._run(ways.PLAIN, None, WARM_UP, TIMED))
        for at in (report.SMALLEST, *limits):
            for way in self.args.ways:
                limit, runs = self.found[way].smallest_bytes if at == report.SMALLEST else at, self.runs[way]
                failed = any(each.ended for each in runs.get(at, []))
                if limit and search.worth_trying(self.found[way], limit) and not failed:
                    runs.setdefault(at, []).append(self._run(way, limit, WARM_UP, TIMED))

    def rows(self, limits):
        return [report.row(way, self.found[way], self.runs[way], limits, self.plain) for way in self.args.ways]

    def document(self, limits):
        """Everything, for --json."""
        return {"model": self.model, "weight_bytes": self.weight_bytes, "limits": limits,
                "plain": [dataclasses.asdict(each) for each in self.plain],
                "ways": {way: {**dataclasses.asdict(self.found[way]),
                               "runs": {str(at): [dataclasses.asdict(each) for each in some]
                                        for at, some in self.runs[way].items()}} for way in self.args.ways}}


def _said(outcome):
    if outcome.ended:
        return outcome.ended
    return (f"{statistics.median(outcome.seconds) * 1e3:.0f} ms, {outcome.read_bytes / MIB:.0f} MiB read, first answer after "
            f"{outcome.first_seconds:.1f} s")


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=list_of(KNOWN_MODELS), default=list(MODELS), metavar="A,B",
                        help=f"of {', '.join(KNOWN_MODELS)}; default: {', '.join(MODELS)}")
    parser.add_argument("--ways", type=list_of(ways.ALL), default=list(ways.ALL), metavar="A,B",
                        help=f"of {', '.join(ways.ALL)}; default: all that scripts/bench has installed")
    parser.add_argument("--rounds", type=int, default=2, help="processes for each way and limit; default: 2")
    parser.add_argument("--found", type=Path, metavar="FILE", help="take the smallest limits from what --json wrote before")
    parser.add_argument("--patience", type=float, default=60, metavar="SECONDS",
                        help=f"for starting; each answer may take {TIMES_PLAIN} times what the plain program takes; default: 60")
    parser.add_argument("--python", default=pythons.PYTHON_213, help="interpreter with PyTorch 2.13; default: that of .deps")
    parser.add_argument("--threads", type=int, help="of all ways; default: PyTorch's own choice")
    add_output(parser)
    return parser.parse_args()


def main():
    # Ends through the finally blocks, so that no process and no cgroup is left behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    args = options()
    group_kind, no_limit = cgroup.find()
    if no_limit:
        raise SystemExit(f"rivals: {no_limit}: there is nothing to compare")
    os.environ["PYTHONPATH"] = pythons.TORCHVISION_213  # of what measures and converts
    setup = variants.Setup(args.python, args.library.resolve(), args.dir.resolve(), args.threads)
    setup.out.mkdir(parents=True, exist_ok=True)
    for way, why in ways.missing(setup).items():
        if way in args.ways:
            progress(f"{way} is left out: {why}")
            args.ways.remove(way)
    documents = []
    for model in args.models:
        rivals = Rivals(setup, args, group_kind, model)
        limits = rivals.measure()
        documents.append(rivals.document(limits))
        print(report.title(model, rivals.weight_bytes, rivals.plain) + "\n")
        print(report.text(rivals.rows(limits), limits, args.markdown) + "\n", flush=True)
        if args.json:
            Path(args.json).write_text(json.dumps({"versions": ways.engine_versions(), "models": documents}, indent=1),
                                       encoding="utf-8")


if __name__ == "__main__":
    main()
