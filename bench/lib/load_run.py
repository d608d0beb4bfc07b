"""One run of one variant: a process and a cgroup of its own, from exec to the last inference."""
import json
import os
import shutil
import time
from dataclasses import dataclass, field

import variants
import weights_file
from child import Ended, Worker

PLAIN, MMAP, ACCELERATE = "plain", "mmap + assign", "accelerate"
FIRST, AGAIN = "swapnet, first load", "swapnet, store there"
# As the command line names them, in the order in which they run: a first load leaves the store.
NAMES = {"plain": PLAIN, "mmap": MMAP, "accelerate": ACCELERATE, "first": FIRST, "again": AGAIN}
_WORKER_VARIANT = {MMAP: "mmap", ACCELERATE: "accelerate"}
INFERENCES = 6
STEADY_LAST = 3         # the passes after swapnet has learned the order
INPUTS = 3
SLOW_SECONDS = 10.0     # so long after loading, INPUTS inferences are enough


@dataclass
class Run:
    """What one run gave, as far as it got. Times in seconds, sizes in bytes."""
    variant: str
    limit_bytes: int | None
    construct_s: float | None = None
    load_s: float | None = None
    first_s: float | None = None        # from before construction to the end of the first inference
    constructed_read_bytes: int | None = None
    load_read_bytes: int | None = None  # by loading alone
    written_bytes: int | None = None    # up to the first inference
    first_read_bytes: int | None = None     # by the first inference
    latencies_s: list = field(default_factory=list)
    hashes: list = field(default_factory=list)
    peaks: dict | None = None
    file_left_bytes: int | None = None  # page cache charged when the program has ended
    ended: str | None = None
    stats: dict | None = None

    def before_first_bytes(self):
        if self.load_read_bytes is None:
            return None
        return self.constructed_read_bytes + self.load_read_bytes


def checkpoint(config, model):
    return config.out / "load" / model.name / model.file


def store(config, model):
    """Of swapnet; a directory of its own for each model, so that emptying it concerns no other."""
    return config.out / "load" / f"{model.name}.store"


def _stats_path(config, model, variant):
    return config.out / f"{_label(model, variant)}.stats.json"


def _label(model, variant):
    short = next(name for name, known in NAMES.items() if known == variant)
    return f"load-{model.name}-{short}"


def worker_command(config, model, variant, python=None):
    argv = [python or config.pythons[model.kind], str(variants.HERE / "load_worker.py"), "--model",
            model.name, "--variant", variant, "--checkpoint", str(checkpoint(config, model))]
    return argv + (["--threads", str(config.threads)] if config.threads else [])


def _start(config, model, variant, group, budget):
    argv = worker_command(config, model, _WORKER_VARIANT.get(variant, "plain"))
    env = variants.plain_environment()
    if variant == ACCELERATE:
        python, path = config.accelerate[model.kind]
        argv = worker_command(config, model, "accelerate", python)
        argv += ["--budget", str(budget), "--offload", str(config.out / "load" / "offload")]
        env["PYTHONPATH"] = path
    elif variant in (FIRST, AGAIN):
        stats = _stats_path(config, model, variant)
        stats.unlink(missing_ok=True)
        env = variants.swapnet_environment(config.library, budget, stats, store(config, model))
        env |= config.extra_env
    return Worker(argv, group, env, config.out / f"{_label(model, variant)}.log")


def _prepare(config, model, variant):
    """A cold start: nothing of the model is in the page cache, and a first load finds no store."""
    shutil.rmtree(config.out / "load" / "offload", ignore_errors=True)
    if variant == FIRST:
        shutil.rmtree(store(config, model), ignore_errors=True)
    store(config, model).mkdir(mode=0o700, parents=True, exist_ok=True)
    # What an earlier run has left to be written would be written while this one is measured,
    # and dirty pages cannot be dropped.
    os.sync()
    for path in (checkpoint(config, model), *store(config, model).iterdir()):
        if path.is_file():
            weights_file.drop_page_cache(path)


def _follow(worker, run, timeout):
    before = worker.answer(timeout)
    start = time.perf_counter()
    loaded = worker.answer(timeout)
    run.construct_s, run.load_s = loaded["construct_s"], loaded["load_s"]
    run.constructed_read_bytes = loaded["constructed"]["read_bytes"] - before["read_bytes"]
    run.load_read_bytes = loaded["read_bytes"] - loaded["constructed"]["read_bytes"]
    run.written_bytes = loaded["write_bytes"] - before["write_bytes"]
    loading_done = time.perf_counter()
    for number in range(INFERENCES):
        if number >= INPUTS and time.perf_counter() - loading_done > SLOW_SECONDS:
            break
        answer = worker.infer(number % INPUTS, timeout)
        if number == 0:
            run.first_s = time.perf_counter() - start
            run.first_read_bytes = answer["read_bytes"] - loaded["read_bytes"]
        run.latencies_s.append(answer["seconds"])
        run.hashes.append(answer["hash"])


def run(config, sampler, group_kind, model, variant, budget, limit):
    """A Run; one that was killed says so in `ended`."""
    _prepare(config, model, variant)
    group = group_kind(f"swapnet-load-{model.name}", limit)
    result = Run(variant, limit)
    try:
        worker = _start(config, model, variant, group, budget)
    except BaseException:
        group.close()
        raise
    try:
        sampler.watch(group)
        _follow(worker, result, config.timeout)
        worker.quit()
        result.file_left_bytes = group.sample()["file"]
    except Ended as end:
        result.ended = str(end)
    finally:
        sampler.watch(None)
        result.peaks = sampler.peaks(group)
        worker.close()
    if result.ended and result.ended.startswith("exit code"):
        result.ended += f": {worker.log_tail().splitlines()[-1:]}"
    if variant in (FIRST, AGAIN):
        result.stats = _read_stats(_stats_path(config, model, variant))
    return result


def _read_stats(path):
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None
