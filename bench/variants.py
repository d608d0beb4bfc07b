"""How each variant is started: the same worker, other weights, or swapnet in front of it."""
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from child import Worker

HERE = Path(__file__).resolve().parent
DEFAULT_LIBRARY = HERE.parent / "build" / "release" / "lib" / "libswapnet.so"

PLAIN, MMAP, DOUBLE, SWAPNET = "plain", "mmap", "double buffer", "swapnet"
ALL = (PLAIN, MMAP, DOUBLE, SWAPNET)
_WORKER_VARIANT = {PLAIN: "plain", MMAP: "mmap", DOUBLE: "double", SWAPNET: "plain"}


@dataclass
class Setup:
    """Where things are and how they are run; the same for the benchmark and the demo."""
    python: str
    library: Path
    out: Path               # work directory, on the disk to measure
    threads: int | None     # None: PyTorch's own choice

    def weights(self, model):
        return self.out / f"{model}.weights"


def python_with_torch(preferred=None):
    """An interpreter that has torch: the preferred or running one, else the system's."""
    for python in filter(None, (preferred, sys.executable, "/usr/bin/python3")):
        probe = subprocess.run([python, "-c", "import torch, torchvision"], check=False,
                               capture_output=True, env=plain_environment())
        if probe.returncode == 0:
            return python
        if preferred:
            break
    raise SystemExit("no python with torch and torchvision found; name one with --python")


def plain_environment():
    """Ours, without whatever would put swapnet or another budget in front of a program."""
    return {key: value for key, value in os.environ.items()
            if key != "LD_PRELOAD" and not key.startswith("SWAPNET")}


def swapnet_environment(library, budget_bytes, stats_path, store):
    preload = [str(library), *filter(None, [os.environ.get("LD_PRELOAD")])]
    env = {**plain_environment(), "LD_PRELOAD": ":".join(preload),
           "SWAPNET_STATS": str(stats_path), "SWAPNET_STORE": str(store)}
    if budget_bytes is not None:  # else swapnetd says
        env["SWAPNET_BUDGET"] = str(budget_bytes)
    return env


def stats_file(setup, label):
    return setup.out / f"{label}.stats.json"


def start(setup, variant, model, group, label, budget_bytes=None, extra_env=None, cpus=None):
    """A Worker of this variant in this cgroup, and on these CPUs. label names its log and
    statistics files."""
    argv = [setup.python, str(HERE / "worker.py"), "--model", model,
            "--variant", _WORKER_VARIANT[variant], "--weights", str(setup.weights(model))]
    if setup.threads:
        argv += ["--threads", str(setup.threads)]
    if cpus:
        argv = ["taskset", "-c", ",".join(map(str, cpus)), *argv]
    env = plain_environment()
    if variant == SWAPNET:
        stats_path = stats_file(setup, label)
        stats_path.unlink(missing_ok=True)
        store = setup.out / "store"
        store.mkdir(exist_ok=True)
        env = swapnet_environment(setup.library, budget_bytes, stats_path, store)
    env.update(extra_env or {})
    return Worker(argv, group, env, setup.out / f"{label}.log")
