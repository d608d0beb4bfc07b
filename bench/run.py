#!/usr/bin/env python3
"""The benchmark: one command, one table, everything interleaved in one run. See README.md."""
import json
import pathlib
import signal
import sys

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent / "lib"))

import bandwidth
import bench_cgroup as cgroup
import config as options
import facts as measuring
import lane as lanes
import ncnn_model
import plan
import plot
import pythons
import results
import slow_disk
import table
import variants
import weights_file
from sampler import Sampler


def progress(text):
    print(f"bench: {text}", file=sys.stderr, flush=True)


class Bench:
    def __init__(self, config):
        self.config = config
        self.group_kind, self.no_limit = cgroup.find()
        self.ncnn = pythons.with_ncnn() if variants.OF_NCNN.keys() & {*config.variants} else None
        self.sampler = Sampler()
        self.rows, self.details = [], {}

    def run(self):
        if self.no_limit:
            progress(f"{self.no_limit}: every variant runs WITHOUT a memory limit")
        for model in self.config.models:
            self._run_model(model)

    def _run_model(self, model):
        weights = self.config.weights(model)
        try:
            progress(f"{model}: measuring sizes")
            facts, self.details[model] = measuring.measure(
                self.config, model, weights,
                self.config.checkpoint(model) if variants.ACCELERATE in self.config.variants else None,
                self.config.samples(model) if self.ncnn else None)
            measuring.warm_libraries(self.config, model)
            facts = measuring.with_base(facts, self.config, self.sampler, self.group_kind, model,
                                        self.config.timeout)
            progress(f"{model}: {_facts_line(facts)}, {self.details[model]['threads']} threads")
            if self.ncnn:
                progress(f"{model}: converting for ncnn")
                ncnn_model.make(self.config, model)
            plain = self._start(variants.PLAIN, model, f"{model}-plain")
            try:
                plain.require()
                for point in self.config.points:
                    self._run_point(model, point, facts, plain)
            finally:
                plain.worker.close()
        finally:
            weights_file.remove(weights)
            weights_file.remove(self.config.checkpoint(model))
            weights_file.remove(self.config.samples(model))

    def _run_point(self, model, point, facts, plain):
        budget = plan.budget(facts, point)
        limit = plan.cgroup_limit(facts, budget)
        point_lanes = [_again(plain)]
        weights_file.drop_page_cache(self.config.weights(model))
        measuring.warm_libraries(self.config, model, self.ncnn)
        try:
            for variant in self.config.variants:
                if variant == variants.BESIDE:  # which holds all weights, and is told what to read
                    point_lanes.append(self._start(variant, model, _label(model, point, variant),
                                                   budget=plan.missing(facts, budget)))
                elif variant != variants.PLAIN:
                    given = budget
                    if variant == variants.ACCELERATE:  # to which activations mean nothing
                        given -= facts.activation_bytes
                    point_lanes.append(self._start(variant, model, _label(model, point, variant),
                                                   limit, given))
            title = f"{model} at {plan.point_name(point)}"
            bandwidths = self._rounds(title, model, point_lanes)
            self._finish(point_lanes[1:])
            beside = next((lane for lane in point_lanes if lane.variant == variants.BESIDE), None)
            self.rows += [results.row(lane, model, point, facts, budget, bandwidths,
                                      point_lanes[0], self._stats_path(model, point), beside)
                          for lane in point_lanes]
        finally:
            for lane in point_lanes[1:]:
                lane.worker.close()

    def _start(self, variant, model, label, limit=None, budget=None):
        progress(f"{label}: building")
        if variant in variants.OF_NCNN:
            ncnn_model.drop_page_cache(self.config, model)  # each reads all of it
        lane = lanes.start(self.config, self.sampler, self.group_kind, variant, model, label,
                           self.config.timeout, limit, budget)
        if lane.ended:
            progress(f"{label}: {lane.ended}\n{lane.worker.log_tail()}".rstrip())
        return lane

    def _rounds(self, title, model, point_lanes):
        """Round-robin over the variants; the disk is measured in every round as well."""
        measured = []
        for number in range(self.config.rounds):
            measured.append(bandwidth.measure(self.config.weights(model), self.config.library))
            for lane in point_lanes:
                was_alive = not lane.ended
                lane.round(self.config.passes)
                if lane.ended and was_alive:
                    progress(f"{title}: {lane.variant}: {lane.ended}")
            progress(f"{title}: round {number + 1} of {self.config.rounds}: "
                     + ", ".join(_lane_text(lane) for lane in point_lanes))
        return measured

    def _finish(self, budgeted):
        for lane in budgeted:
            if not lane.ended:
                self.sampler.watch(lane.worker.group)
                lane.worker.quit()
                self.sampler.watch(None)

    def _stats_path(self, model, point):
        return variants.stats_file(self.config, _label(model, point, variants.SWAPNET))


def _again(plain):
    """A fresh lane around the plain worker, which lives through all points of its model."""
    lane = lanes.Lane(variants.PLAIN, plain.worker, plain.sampler, plain.timeout)
    lane.warm_up()
    return lane


def _label(model, point, variant):
    name = point if point == plan.FITS else f"{point * 100:g}"
    return f"{model}-{name}-{variant.replace(' ', '-')}"


def _lane_text(lane):
    latency = lane.latency()
    return f"{lane.variant} {latency * 1e3:.0f} ms" if latency else f"{lane.variant} -"


def _facts_line(facts):
    return ", ".join(f"{name} {size / plan.MIB:.1f} MiB" for name, size in (
        ("weights", facts.weight_bytes), ("streamable", facts.streamable_bytes),
        ("other tensors", facts.activation_bytes), ("base", facts.base_bytes),
        ("file pages", facts.file_bytes)))


def _library_present(config):
    if variants.SWAPNET in config.variants and not config.library.exists():
        progress(f"{config.library} is not built: the swapnet rows are left out")
        config.variants.remove(variants.SWAPNET)
    if variants.BESIDE in config.variants and not config.beside().exists():
        progress(f"{config.beside()} is not built: the rows of beside are left out")
        config.variants.remove(variants.BESIDE)


def _accelerate_present(config):
    if variants.ACCELERATE not in config.variants:
        return
    for model in config.models:
        if not pythons.with_accelerate(model in variants.TRANSFORMERS):
            progress("no accelerate for all of the models: its rows are left out, see scripts/bench")
            config.variants.remove(variants.ACCELERATE)
            return


def _ncnn_present(config):
    wanted = [variant for variant in config.variants if variant in variants.OF_NCNN]
    if wanted and not pythons.with_ncnn():
        progress("no ncnn: its rows are left out, see scripts/bench")
        config.variants = [variant for variant in config.variants if variant not in wanted]


def _models_present(config):
    for model in [*config.models]:
        if model in variants.TRANSFORMERS and not pythons.imports(
                config.interpreter(model), "torch, transformers"):
            progress(f"{config.interpreter(model)} has no transformers: {model} is left out")
            config.models.remove(model)


def _write_json(bench):
    document = {"schema": 1, "limited": bench.group_kind.limited, "disk_mb_per_s": bench.config.disk,
                "models": bench.details, "rows": bench.rows, "shortfalls": results.shortfalls(bench.rows)}
    with open(bench.config.json, "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)


def main():
    # Ends through the finally blocks, so that no worker and no cgroup is left behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    config = options.parse()
    config.out.mkdir(parents=True, exist_ok=True)
    slow_disk.throttle(config.out, config.disk)
    _library_present(config)
    _models_present(config)
    _accelerate_present(config)
    _ncnn_present(config)
    bench = Bench(config)
    try:
        bench.run()
    except KeyboardInterrupt:
        progress("interrupted; the table holds what was finished")
    if config.json:
        _write_json(bench)
    if config.curve and bench.rows:
        plot.draw(bench.rows, config.curve)
    for line in results.shortfalls(bench.rows):
        progress(f"falls short: {line}")
    if bench.rows:
        print(table.markdown(bench.rows) if config.markdown else table.text(bench.rows))


if __name__ == "__main__":
    main()
