"""How each variant is started: the same worker, other weights, or swapnet in front of it."""
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pythons
from child import Worker
from pythons import plain_environment

HERE = Path(__file__).resolve().parent  # of the programs that benches start
ROOT = HERE.parent.parent
OUT = HERE.parent / "out"
DEFAULT_LIBRARY = ROOT / "build" / "release" / "lib" / "libswapnet.so"

PLAIN, BESIDE, MMAP, DOUBLE, ACCELERATE, NCNN, NCNN_LEAN, SWAPNET = (
    "plain", "beside", "mmap", "double buffer", "accelerate", "ncnn", "ncnn lean", "swapnet")
ALL = (PLAIN, BESIDE, MMAP, DOUBLE, ACCELERATE, NCNN, NCNN_LEAN, SWAPNET)
_WORKER_VARIANT = {PLAIN: "plain", BESIDE: "beside", MMAP: "mmap", DOUBLE: "double", ACCELERATE: "accelerate",
                   SWAPNET: "plain"}
# swapnet with parts left out (SWAPNET_WITHOUT), for bench/run.py --ablations.
WITHOUT = {"no prefetch": "prefetch", "no kept set": "kept", "no slices": "slices",
           "no static plan": "places",
           "load-compute-drop": "prefetch,kept,slices,places"}
# Another framework: no PyTorch in it, and a model that was converted. What its worker is told besides.
OF_NCNN = {NCNN: (), NCNN_LEAN: ("--lean",)}
# Those that need another PyTorch than torchvision's.
TRANSFORMERS = ("gpt2", "bert_base")


@dataclass
class Setup:
    """Where things are and how they are run; the same for the benchmark and the demo."""
    python: str             # that has torchvision
    library: Path
    out: Path               # work directory, on the disk to measure
    threads: int | None     # None: PyTorch's own choice

    def weights(self, model):
        return self.out / f"{model}.weights"

    def checkpoint(self, model):
        """What accelerate loads."""
        return self.out / f"{model}.pth"

    def samples(self, model):
        """What the plain program answers to its inputs; ncnn's outputs are compared with that."""
        return self.out / f"{model}.samples.npz"

    def ncnn(self, model):
        """A directory with what ncnn loads."""
        return self.out / f"{model}.ncnn"

    def beside(self):
        """What was made of beside.c, with the library."""
        return self.library.parent / "libbench-beside.so"

    def interpreter(self, model):
        return pythons.PYTHON_213 if model in TRANSFORMERS else self.python


def swapnet_environment(library, budget_bytes, stats_path, store):
    preload = [str(library), *filter(None, [os.environ.get("LD_PRELOAD")])]
    env = {**plain_environment(), "LD_PRELOAD": ":".join(preload),
           "SWAPNET_STATS": str(stats_path), "SWAPNET_STORE": str(store)}
    if budget_bytes is not None:  # else swapnetd says
        env["SWAPNET_BUDGET"] = str(budget_bytes)
    return env


def stats_file(setup, label):
    return setup.out / f"{label}.stats.json"


def start(setup, variant, model, group, label, budget_bytes=None, extra_env=None, cpus=None, weights=None):
    """A Worker of this variant in this cgroup, and on these CPUs. label names its log and
    statistics files; weights is a file of its own, where the model's is another one's. The budget
    of beside is what it reads in a pass."""
    if variant in OF_NCNN:
        argv, env = _ncnn_worker(setup, variant, model), plain_environment()
    else:
        argv, env = _torch_worker(setup, variant, model, label, budget_bytes, weights or setup.weights(model))
    if cpus:
        argv = ["taskset", "-c", ",".join(map(str, cpus)), *argv]
    if variant == SWAPNET or variant in WITHOUT:
        stats_path = stats_file(setup, label)
        stats_path.unlink(missing_ok=True)
        store = setup.out / "store"
        store.mkdir(exist_ok=True)
        env = swapnet_environment(setup.library, budget_bytes, stats_path, store)
        if variant in WITHOUT:
            env["SWAPNET_WITHOUT"] = WITHOUT[variant]
    env.update(extra_env or {})
    return Worker(argv, group, env, setup.out / f"{label}.log")


def _ncnn_worker(setup, variant, model):
    # It takes as many threads as the plain program, whatever that is: the samples tell.
    return [pythons.with_ncnn(), str(HERE / "ncnn_worker.py"), "--samples", str(setup.samples(model)),
            "--model", str(setup.ncnn(model)), *OF_NCNN[variant]]


def _torch_worker(setup, variant, model, label, budget_bytes, weights):
    python, env = setup.interpreter(model), plain_environment()
    if variant == ACCELERATE:
        python, env["PYTHONPATH"] = pythons.with_accelerate(model in TRANSFORMERS)
    argv = [python, str(HERE / "worker.py"), "--model", model,
            "--variant", _WORKER_VARIANT.get(variant, "plain"), "--weights", str(weights)]
    if variant == BESIDE:
        argv += ["--helper", str(setup.beside()), "--pass-bytes", str(budget_bytes)]
    if variant == ACCELERATE:
        offload = setup.out / f"{label}.offload"
        shutil.rmtree(offload, ignore_errors=True)
        argv += ["--checkpoint", str(setup.checkpoint(model)), "--room", str(budget_bytes),
                 "--offload", str(offload)]
    if setup.threads:
        argv += ["--threads", str(setup.threads)]
    return argv, env
