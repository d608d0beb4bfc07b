#!/usr/bin/env python3
"""The demo: an ordinary program (demo_app.py) plainly, then under swapnet in a memory cgroup.

Exit code 0 only if the outputs have the same bits and nothing was killed."""
import argparse
import concurrent.futures
import contextlib
import dataclasses
import json
import signal
import statistics
import subprocess
import sys
import threading
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parent / "lib"))

import bench_cgroup as cgroup
import facts as measuring
import plan
import pythons
import table
import variants
from sampler import Sampler

# How much of the streamable weights the budget pays for: VGG-19's largest layer alone is 72 % of
# it and must fit, ResNet-101 has no such layer.
POINTS = {"vgg19": 0.75, "resnet101": 0.5}
INFERENCES = 5
TIMED_LAST = 3          # the order is known then; their median is no pass in which what stays is read
TIMEOUT_SECONDS = 120
COLUMNS = ("model", "size MiB", "program", "budget MiB", "limit MiB", "peak MiB", "latency ms",
           "same bits", "note")


def progress(text):
    print(f"demo: {text}", file=sys.stderr, flush=True)


@dataclasses.dataclass
class Outcome:
    """One run of the program, as far as it got."""
    latencies_ms: list
    outputs: str | None     # digest; None if the program did not end well
    peak_bytes: int         # anonymous, shared and kernel memory of the whole process
    failure: str | None


class Demo:
    def __init__(self, setup):
        self.setup = setup
        self.group_kind, self.no_limit = cgroup.find()
        self.sampler = Sampler()

    def run(self, models):
        """Rows of the table and whether all went well."""
        if self.no_limit:
            progress(f"{self.no_limit}: running WITHOUT a memory limit")
        checkpoints = [self.setup.out / f"{model}.pth" for model in models]
        rows, good = [], True
        try:
            progress("saving checkpoints with random weights, and measuring how much memory inferences take")
            with concurrent.futures.ThreadPoolExecutor() as pool:
                warm = pool.submit(measuring.warm_libraries, self.setup, models[0])
                sizes = list(pool.map(self._make, models, checkpoints))
                warm.result()
            for model, checkpoint, facts in zip(models, checkpoints, sizes):
                model_rows, model_good = self._run_model(model, checkpoint, facts)
                rows += model_rows
                good = good and model_good
        finally:
            for checkpoint in checkpoints:
                checkpoint.unlink(missing_ok=True)
        return rows, good

    def _make(self, model, checkpoint):
        # Taken without torch.load: there two copies of the weights make the peak, and the work
        # buffers of the inference would not show beside them.
        return measuring.measure(self.setup, model, checkpoint=checkpoint)[0]

    def _run_model(self, model, checkpoint, facts):
        progress(f"{model}: measuring what the program needs besides tensors")
        facts = measuring.with_base(facts, self.setup, self.sampler, self.group_kind, model,
                                    TIMEOUT_SECONDS, passes=INFERENCES)
        budget = plan.budget(facts, POINTS[model])
        limit = plan.cgroup_limit(facts, budget)
        progress(f"{model}: plain PyTorch")
        plain = self._run_app(model, checkpoint, None, variants.plain_environment())
        progress(f"{model}: swapnet, budget {budget / plan.MIB:.0f} MiB"
                 + ("" if self.no_limit else f", hard limit {limit / plan.MIB:.0f} MiB"))
        swapped = self._run_swapped(model, checkpoint, limit, budget)
        same = plain.outputs is not None and plain.outputs == swapped.outputs
        rows = [_cells(model, facts, "plain", None, None, plain, None),
                _cells(model, facts, "swapnet", budget, None if self.no_limit else limit, swapped,
                       same)]
        return rows, same and not plain.failure and not swapped.failure

    def _run_swapped(self, model, checkpoint, limit, budget):
        stats_path = variants.stats_file(self.setup, f"{model}-demo")
        stats_path.unlink(missing_ok=True)
        store = self.setup.out / "store"
        store.mkdir(exist_ok=True)
        env = variants.swapnet_environment(self.setup.library, budget, stats_path, store)
        outcome = self._run_app(model, checkpoint, limit, env)
        if not outcome.failure and not _streamed(stats_path):
            outcome.failure = "swapnet was off"
        return outcome

    def _run_app(self, model, checkpoint, limit, env):
        argv = [self.setup.python, str(variants.HERE / "demo_app.py"), model, str(checkpoint),
                "--inferences", str(INFERENCES)]
        with self.group_kind(f"swapnet-demo-{model}", limit) as group:
            app = subprocess.Popen(group.command(argv), stdout=subprocess.PIPE, text=True, env=env)
            group.started(app.pid)
            with _watching(self.sampler, group), _killed_after(app, TIMEOUT_SECONDS) as timer:
                latencies, outputs = _follow(app.stdout)
                code = app.wait()
            return Outcome(latencies, outputs if code == 0 else None,
                           self.sampler.peaks(group)["held"], _failure(code, group, timer))


@contextlib.contextmanager
def _watching(sampler, group):
    sampler.watch(group)
    try:
        yield
    finally:
        sampler.watch(None)


@contextlib.contextmanager
def _killed_after(process, seconds):
    """Yields an event that is set if the process had to be killed."""
    fired = threading.Event()
    timer = threading.Timer(seconds, lambda: (fired.set(), process.kill()))
    timer.start()
    try:
        yield fired
    finally:
        timer.cancel()
        process.kill()  # does nothing to one that has ended
        process.wait()


def _follow(lines):
    """Show the program's own output as it comes; (latencies in ms, digest of the outputs)."""
    latencies, outputs = [], None
    for line in lines:
        progress(f"  {line.rstrip()}")
        head, _, tail = line.partition(": ")
        if head.startswith("inference "):
            latencies.append(float(tail.split()[0]))
        elif head == "outputs sha256":
            outputs = tail.strip()
    return latencies, outputs


def _failure(code, group, killed):
    if group.oom_kills():
        return "out of memory"
    if killed.is_set():
        return f"not done in {TIMEOUT_SECONDS} s"
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}" if code else None


def _streamed(stats_path):
    """Whether swapnet was at work, by its own statistics."""
    try:
        return json.loads(stats_path.read_text()).get("streamed_bytes", 0) > 0
    except (OSError, ValueError):
        return False


def _cells(model, facts, program, budget, limit, outcome, same):
    def mib(value):
        return "" if value is None else f"{value / plan.MIB:.0f}"
    last = outcome.latencies_ms[-TIMED_LAST:]
    return (model, mib(facts.weight_bytes), program, mib(budget), mib(limit),
            mib(outcome.peak_bytes), f"{statistics.median(last):.1f}" if last else "",
            {None: "", True: "yes", False: "NO"}[same], outcome.failure or "")


def _arguments():
    parser = argparse.ArgumentParser(prog="bench/demo.py", description=__doc__)
    parser.add_argument("--models", default=",".join(POINTS), metavar="A,B",
                        help=f"of {', '.join(POINTS)}; default: both")
    parser.add_argument("--dir", type=Path, default=variants.OUT,
                        help="work directory, on a real disk; default: bench/out")
    parser.add_argument("--library", type=Path, default=variants.DEFAULT_LIBRARY)
    parser.add_argument("--python", help="interpreter with torch; default: this or the system's")
    args = parser.parse_args()
    unknown = set(args.models.split(",")) - set(POINTS)
    if unknown:
        parser.error(f"unknown model: {', '.join(sorted(unknown))}")
    if not args.library.exists():
        parser.exit(1, f"demo: {args.library} is not built; run cmake first\n")
    return args


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    args = _arguments()
    args.dir.mkdir(parents=True, exist_ok=True)
    setup = variants.Setup(pythons.with_torchvision(args.python), args.library.resolve(),
                           args.dir.resolve(), threads=None)
    rows, good = Demo(setup).run(args.models.split(","))
    print(table.grid(COLUMNS, rows))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
