#!/usr/bin/env python3
"""Two builds of swapnet against each other, everything interleaved in one run. See README.md.

    python3 bench/engine.py --old ../before/build/release --new build/release --models vgg19,vit_b_16 --points 25,50
"""
import argparse
import dataclasses
import json
import signal
import subprocess
import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parent / "lib"))

import bandwidth
import bench_cgroup as cgroup
import config as options
import engine_table
import lane as lanes
import plan
import pythons
import variants
import weights_file
from child import Worker
from options import list_of
from sampler import Sampler

MODELS = ("vgg19", "resnet152", "vit_b_16", "mobilenet_v2", "gpt2")
# As in engine_worker.py, which needs PyTorch; each of their inferences makes so many tokens, with a pass for each.
GENERATORS, NEW_TOKENS = ("gpt2_like", "llama_like"), 16
# The program of a series; those that are measured together share their rounds, and the last is what they are compared with.
SERIES = {"a": "plain", "b": "idle", "c": "compiled", "d": "generate", "d alone": "alone"}
TOGETHER = (("a", "b"), ("c",), ("d", "d alone"))
IN_MEMORY, OLD, NEW = "in memory", "old", "new"


def progress(text):
    print(f"engine: {text}", file=sys.stderr, flush=True)


class Engine:
    def __init__(self, args):
        self.args = args
        self.libraries = {OLD: args.old, NEW: args.new}
        self.group_kind, _ = cgroup.find()
        self.sampler = Sampler()
        self.rows = []

    def run(self):
        for together in TOGETHER:
            series = [name for name in together if name[0] in self.args.series]
            for model in (GENERATORS if "d" in together else self.args.models) if series else ():
                reason = self._missing(model, series[0])
                if reason:
                    progress(f"{model}: {reason}: left out of {' and '.join(series)}")
                else:
                    self._run_model(model, series)

    def _python(self, model, series):
        """(interpreter, PYTHONPATH): torch.compile and transformers are the later PyTorch's."""
        if model in variants.TRANSFORMERS + GENERATORS:
            return pythons.PYTHON_213, ""
        return (pythons.PYTHON_213, pythons.TORCHVISION_213) if series == "c" else (self.args.python, "")

    def _missing(self, model, series):
        python, path = self._python(model, series)
        library = "transformers" if model in variants.TRANSFORMERS + GENERATORS else "torchvision"
        if path and not Path(path, "torchvision").exists():
            return "no torchvision for PyTorch 2.13, see scripts/bench"
        if not path and not pythons.imports(python, f"torch, {library}"):
            return f"{python} has no {library}"
        return None

    def _argv(self, model, series, *more):
        python, path = self._python(model, series)
        argv = [python, str(variants.HERE / "engine_worker.py"), "--model", model, "--program", SERIES[series], *more]
        if model in GENERATORS:
            argv += ["--checkpoint", str(self.args.dir / model)]
        if self.args.threads:
            argv += ["--threads", str(self.args.threads)]
        # One cache of compiled code for all: what is compared has to be the same code. And no helpers that compile: each
        # would write swapnet's statistics as well.
        return argv, {"PYTHONPATH": path, "TORCHINDUCTOR_CACHE_DIR": str(self.args.dir / "inductor"),
                      "TORCHINDUCTOR_COMPILE_THREADS": "1"}

    def _measure(self, model, series):
        program = "a" if series[0] == "c" else series[0]  # eager: activations are an upper bound of compiled code's
        argv, env = self._argv(model, series[0], "--measure", "--weights", str(self._weights(model)))
        argv[argv.index("--program") + 1] = SERIES[program]
        done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, env=variants.plain_environment() | env)
        if done.returncode:
            raise SystemExit(f"engine: measuring {model} failed with exit code {done.returncode}")
        found = json.loads(done.stdout.splitlines()[-1])
        names = {field.name for field in dataclasses.fields(plan.Facts)}
        return plan.Facts(**{name: found[name] for name in names & found.keys()})

    def _run_model(self, model, series):
        try:
            facts = self._measure(model, series)
            for point in self.args.points:
                self._run_point(model, series, point, facts)
        finally:
            weights_file.remove(self._weights(model))

    def _run_point(self, model, series, point, facts):
        budget = plan.budget(facts, point)
        title = f"{model} at {plan.point_name(point)}"
        started = {}
        try:
            for name in series:
                for build in (IN_MEMORY, OLD, NEW):
                    progress(f"{title}: {name}, {build}: building")
                    started[name, build] = self._start(model, name, point, build, budget)
            bandwidths = self._rounds(title, started)
            for lane in started.values():
                if not lane.ended:
                    lane.worker.quit()
            for name in series:
                self.rows.append(self._row(model, series, name, point, facts, budget, started, bandwidths))
        finally:
            for lane in started.values():
                lane.worker.close()

    def _start(self, model, series, point, build, budget):
        at = point if point == plan.FITS else f"{point * 100:g}"
        label = f"engine-{model}-{at}-{series}-{build}".replace(" ", "-")
        argv, env = self._argv(model, series)
        if build == IN_MEMORY:
            env = variants.plain_environment() | env
        else:
            store = self.args.dir / f"store-{build}"
            store.mkdir(exist_ok=True)
            env = variants.swapnet_environment(self.libraries[build], budget, self._stats(label), store) | env
        group = self.group_kind(f"swapnet-{label}")
        try:
            worker = Worker(argv, group, env, self.args.dir / f"{label}.log")
        except BaseException:
            group.close()
            raise
        lane = lanes.Lane(build, worker, self.sampler, self.args.timeout)
        lane.stats_path, lane.rounds = self._stats(label), []
        try:
            lane.build(lanes.BUILD_TIMEOUT_SECONDS)
            lane.warm_up(self.args.warm_up)
            if "swapnet: off" in (said := worker.log_tail()):
                raise SystemExit(f"engine: {label} would be measured without swapnet:\n{said}")
        except BaseException:
            worker.close()
            raise
        if lane.ended:
            progress(f"{label}: {lane.ended}\n{worker.log_tail()}")
        return lane

    def _weights(self, model):
        """To measure the disk with; not the file of that name which bench/run.py makes and removes."""
        return self.args.dir / f"engine-{model}.weights"

    def _stats(self, label):
        return self.args.dir / f"{label}.stats.json"

    def _rounds(self, title, started):
        """Round-robin, there and back again: so that neither of two has always the same one before it."""
        measured = []
        for number in range(self.args.rounds):
            measured.append(bandwidth.measure(self._weights(title.split()[0]), self.args.new))
            order = [*started.items()]
            for (name, build), lane in order if number % 2 == 0 else order[::-1]:
                was_alive, before = not lane.ended, len(lane.latencies)
                lane.round(self.args.passes)
                lane.rounds.append(lane.latencies[before:])
                if lane.ended and was_alive:
                    progress(f"{title}: {name}, {build}: {lane.ended}\n{lane.worker.log_tail()}")
            progress(f"{title}: round {number + 1} of {self.args.rounds}: " + ", ".join(
                f"{name} {build} {lane.latency() * 1e3:.0f} ms" for (name, build), lane in order if lane.latency()))
        return measured

    def _row(self, model, series, name, point, facts, budget, started, bandwidths):
        passes = NEW_TOKENS if model in GENERATORS else 1
        own = {build: started[name, build] for build in (IN_MEMORY, OLD, NEW)}
        # An idle thread is compared with none, a monitor with none.
        against = {"b": "a", "d": "d alone"}.get(name)
        other = started.get((against, NEW))
        return engine_table.row(
            {"series": name, "model": model, "point": plan.point_name(point), "budget_bytes": budget,
             "must_read_bytes": plan.missing(facts, budget) * passes, "bandwidths": bandwidths},
            own[IN_MEMORY], own[OLD], own[NEW], other.latency() if other else None, self.sampler)


def _library(text):
    path = (Path(text) / "lib" / "libswapnet.so").resolve()
    if not path.exists():
        raise argparse.ArgumentTypeError(f"no {path}")
    return path


def parse():
    parser = argparse.ArgumentParser(prog="bench/engine.py", description=__doc__.splitlines()[0])
    parser.add_argument("--old", type=_library, required=True, metavar="DIR", help="build directory, as build/release")
    parser.add_argument("--new", type=_library, required=True, metavar="DIR", help="the one that is compared with it")
    parser.add_argument("--models", type=list_of(options.KNOWN_MODELS), default=list(MODELS), metavar="A,B",
                        help=f"of {', '.join(options.KNOWN_MODELS)}; default: {', '.join(MODELS)}. Series d has its own")
    parser.add_argument("--points", type=options.parse_points, default=[0.25, 0.5, 0.75, 1.1], metavar="P,Q",
                        help="percent of the streamable weights that the budget pays for; default: 25,50,75,110")
    parser.add_argument("--series", type=list_of("abcd"), default=list("abcd"), metavar="A,B",
                        help="a: one thread, b: an idle second one, c: torch.compile, d: generate beside tqdm's monitor")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--passes", type=int, default=3, help="timed inferences on end per lane and round")
    parser.add_argument("--warm-up", type=int, default=lanes.WARM_UP_PASSES, help="inferences before the first round")
    parser.add_argument("--threads", type=int, help="PyTorch's threads; default: PyTorch's own")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one inference; compiling is in the first")
    parser.add_argument("--python", help="interpreter with torchvision; default: this or the system's")
    parser.add_argument("--dir", type=Path, default=variants.OUT, help="work directory, on the disk to measure")
    parser.add_argument("--json", metavar="FILE", help="write all results as JSON as well")
    args = parser.parse_args()
    if min(args.rounds, args.passes, args.warm_up) < 1:
        parser.error("--rounds, --passes and --warm-up are at least 1")
    args.python, args.dir = pythons.with_torchvision(args.python), args.dir.resolve()
    return args


def main():
    # Ends through the finally blocks, so that no worker and no cgroup is left behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    args = parse()
    args.dir.mkdir(parents=True, exist_ok=True)
    engine = Engine(args)
    try:
        engine.run()
    except KeyboardInterrupt:
        progress("interrupted; the table holds what was finished")
    if args.json:
        document = {"schema": 1, "rows": engine.rows, "means": engine_table.means(engine.rows),
                    "shortfalls": engine_table.shortfalls(engine.rows)}
        Path(args.json).write_text(json.dumps(document, indent=1), encoding="utf-8")
    for line in engine_table.shortfalls(engine.rows):
        progress(f"falls short: {line}")
    if engine.rows:
        print(engine_table.markdown(engine.rows))


if __name__ == "__main__":
    main()
