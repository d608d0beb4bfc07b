#!/usr/bin/env python3
"""The loading benchmark: checkpoints loaded plainly, mapped, by accelerate and under swapnet."""
import dataclasses
import json
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent / "lib"))

import bench_cgroup as cgroup
import facts as measuring
import load_config
import load_run
import load_table
import plan
import slow_disk
import table
import variants
from child import Worker
from load_list import ALONE
from sampler import Sampler

POINT = 0.25
BASE_INFERENCES = 4
ALONE_RUNS = 5


def progress(text):
    print(f"load: {text}", file=sys.stderr, flush=True)


class LoadBench:
    def __init__(self, config):
        self.config = config
        self.group_kind, self.no_limit = cgroup.find()
        self.sampler = Sampler()
        self.rows = []
        self.warm = set()       # kinds of models whose libraries are in the page cache

    def run(self):
        if self.no_limit:
            progress(f"{self.no_limit}: every variant runs WITHOUT a memory limit")
        for model in self.config.models:
            try:
                self._run_model(model)
            finally:
                if not self.config.keep:
                    shutil.rmtree(self.config.out / "load", ignore_errors=True)

    def _ask(self, model, variant):
        done = subprocess.run(load_run.worker_command(self.config, model, variant), check=False,
                              stdout=subprocess.PIPE, text=True, env=variants.plain_environment())
        if done.returncode:
            raise SystemExit(f"load: {variant} {model.name}: exit code {done.returncode}")
        return done.stdout

    def _facts(self, model):
        """Measured once for a checkpoint that is kept."""
        path = load_run.checkpoint(self.config, model).with_name("facts.json")
        if not path.exists():
            path.write_text(json.dumps(dataclasses.asdict(self._measure(model))))
        return plan.Facts(**json.loads(path.read_text()))

    def _measure(self, model):
        found = json.loads(self._ask(model, "measure"))
        names = {field.name for field in dataclasses.fields(plan.Facts)} & found.keys()
        tensors = found["making_bytes"], found["inferring_bytes"]
        facts = plan.Facts(peak_alloc_bytes=max(tensors),
                           **{name: found[name] for name in names})
        if model.kind not in self.warm:
            self._base_run(model)  # reads the libraries: the first process that touches them pays for them
            self.warm.add(model.kind)
        held, file_bytes = self._base_run(model)
        base = max(0, *(of - less for of, less in zip(held, tensors)))
        return dataclasses.replace(facts, base_bytes=base, file_bytes=file_bytes)

    def _base_run(self, model):
        """(peaks of anonymous memory, peak of file pages) of a program that makes a model, and
        infers: one peak for each of the two, since libraries take their buffers in the latter,
        and a model whose weights are tied needs most in the former."""
        group = self.group_kind(f"swapnet-load-{model.name}-base")
        env = {**variants.plain_environment(), **measuring.RETURN_FREED}
        argv = load_run.worker_command(self.config, model, "base")
        worker = Worker(argv, group, env, self.config.out / f"load-{model.name}-base.log")
        try:
            self.sampler.watch(group)
            worker.answer(self.config.timeout)
            worker.answer(self.config.timeout)
            self.sampler.watch(None)
            making = self.sampler.peaks(group)
            self.sampler.forget(group)
            self.sampler.watch(group)
            for number in range(BASE_INFERENCES):
                worker.infer(number, self.config.timeout)
        finally:
            self.sampler.watch(None)
            worker.close()
        peaks = self.sampler.peaks(group)
        mapped = model.loading == "from_pretrained"  # the weights, then, which are no libraries
        return (making["anon"], peaks["anon"]), 0 if mapped else max(making["file"], peaks["file"])

    def _run_model(self, model):
        path = load_run.checkpoint(self.config, model)
        if not (path.exists() and (path.parent / ALONE).exists()):
            progress(f"{model.name}: writing the checkpoint")
            self._ask(model, "save")
        facts = self._facts(model)
        alone_s = statistics.median(json.loads(self._ask(model, "alone"))["seconds"]
                                    for _ in range(ALONE_RUNS))
        budget = plan.budget(facts, POINT)
        limit = plan.cgroup_limit(facts, budget)
        progress(f"{model.name}: weights {facts.weight_bytes >> 20} MiB, base "
                 f"{facts.base_bytes >> 20}, budget {budget >> 20}, limit {limit >> 20}, "
                 f"Python alone {alone_s:.3f} s")
        chosen = [variant for variant in self.config.variants if self._has(model, variant)]
        runs, too_small = [], set()
        for number in range(self.config.rounds):
            for variant in chosen:
                unlimited = variant == load_run.PLAIN or variant in too_small
                run = load_run.run(self.config, self.sampler, self.group_kind, model, variant,
                                   budget, None if unlimited else limit)
                runs.append(run)
                progress(f"{model.name}: round {number + 1}: {_run_text(run)}")
                if run.ended and variant in (load_run.MMAP, load_run.ACCELERATE) and not unlimited:
                    too_small.add(variant)
                    runs.append(load_run.run(self.config, self.sampler, self.group_kind, model,
                                             variant, budget, None))
                    progress(f"{model.name}: without a limit: {_run_text(runs[-1])}")
        self.rows += [load_table.row(model, facts, budget, alone_s, variant, runs)
                      for variant in chosen]

    def _has(self, model, variant):
        """PyTorch 1.13 cannot map a checkpoint; accelerate and swapnet may not be installed."""
        if variant == load_run.MMAP:
            return model.kind == "transformers"
        if variant == load_run.ACCELERATE:
            return model.kind in self.config.accelerate
        return variant == load_run.PLAIN or self.config.library.exists()


def _run_text(run):
    if run.ended:
        return f"{run.variant}: {run.ended}"
    return (f"{run.variant}: load {run.load_s:.3f} s, first {run.first_s:.2f} s, "
            f"{run.before_first_bytes() >> 20} MiB read, peak {run.peaks['held'] >> 20} MiB")


def _write_json(bench):
    document = {"schema": 1, "limited": bench.group_kind.limited, "disk_mb_per_s": bench.config.disk,
                "load_average": load_table.load_average(), "rows": bench.rows,
                "shortfalls": load_table.shortfalls(bench.rows)}
    with open(bench.config.json, "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)


def main():
    # Both end through the finally blocks, so that no worker and no cgroup is left behind, and show
    # what was measured; a shell has its background jobs ignore SIGINT.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    config = load_config.parse()
    config.out.mkdir(parents=True, exist_ok=True)
    slow_disk.throttle(config.out, config.disk)
    for text in config.missing:
        progress(text)
    bench = LoadBench(config)
    progress(f"load average {load_table.load_average()}")
    try:
        bench.run()
    except KeyboardInterrupt:
        progress("interrupted; the table holds what was finished")
    progress(f"load average {load_table.load_average()}")
    if config.json:
        _write_json(bench)
    for line in load_table.shortfalls(bench.rows):
        progress(f"falls short: {line}")
    if bench.rows:
        lines = [load_table.cells(row) for row in bench.rows]
        show = table.markdown_grid if config.markdown else table.grid
        print(show(load_table.COLUMNS, lines))


if __name__ == "__main__":
    main()
