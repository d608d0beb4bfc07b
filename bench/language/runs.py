"""Starts generator.py, or bench/lib/worker.py for a model of pictures, plainly or with swapnet."""
import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[1:1] = [str(HERE.parent / "lib")]

import bench_cgroup as cgroup
import pythons
import variants
import weights_file
from child import Ended, Worker
from plan import MIB

PLAIN, BESIDE, MMAP, ACCELERATE, SWAPNET = "plain", "beside", "mmap", "accelerate", "swapnet"
OWN_COPY = (MMAP, ACCELERATE, SWAPNET)  # of the checkpoint: pages of a file are charged to who reads them first
TIMEOUT_SECONDS = 900
OUT = variants.OUT


def add_options(parser):
    parser.add_argument("--python", default=pythons.PYTHON_213, help="an interpreter with transformers")
    parser.add_argument("--library", type=Path, default=variants.DEFAULT_LIBRARY, help="libswapnet.so")
    parser.add_argument("--dir", type=Path, default=OUT, help="work directory, on the disk that is measured")
    parser.add_argument("--tokens", type=int, default=16, help="of each answer")
    parser.add_argument("--prompt", type=int, default=16, help="tokens of a prompt")
    parser.add_argument("--threads", type=int, help="that compute; default: PyTorch's own number")
    parser.add_argument("--json", type=Path, help="all numbers go to this file")


def say(text):
    print(text, file=sys.stderr, flush=True)


class Runs:
    """Of one model."""

    def __init__(self, args, model, router="own"):
        self.args, self.model, self.router = args, model, router
        args.dir.mkdir(parents=True, exist_ok=True)
        self.checkpoint = args.dir / model
        self.facts = None
        subprocess.run([*self._argv(), "--make"], check=True, env=pythons.plain_environment(), stdout=subprocess.DEVNULL)

    def _argv(self, *more, checkpoint=None):
        return [self.args.python, str(HERE / "generator.py"), "--model", self.model, "--checkpoint",
                str(checkpoint or self.checkpoint), "--router", self.router, "--tokens", str(self.args.tokens),
                "--prompt", str(self.args.prompt), *(["--compile"] if getattr(self.args, "compile", False) else []), *more]

    def own_checkpoint(self, variant):
        """A copy that nobody else reads, and that is in no page cache."""
        copy = self.args.dir / f"{self.model}.{variant}"
        if not copy.exists():
            shutil.copytree(self.checkpoint, copy)
            subprocess.run(["sync", "-f", str(copy)], check=True)
        for path in copy.glob("*.safetensors"):
            weights_file.drop_page_cache(path)
        return copy

    def start(self, *args, **kwargs):
        """A worker whose model is there, as of begin."""
        worker = self.begin(*args, **kwargs)
        self.await_model(worker)
        return worker

    def begin(self, variant, label, budget=None, group=None, more=()):
        """A worker whose model will be there; budget: of swapnet."""
        env = pythons.plain_environment()
        label = f"{self.model}.{variant}.{label}"
        if variant == SWAPNET:
            stats, store = self.stats(label), self.args.dir / "store"
            stats.unlink(missing_ok=True)
            store.mkdir(exist_ok=True)
            env = variants.swapnet_environment(self.args.library, budget, stats, store)
        elif variant != PLAIN:
            more = ["--variant", variant, *more]
        if self.args.threads:
            env["OMP_NUM_THREADS"] = str(self.args.threads)
        # One cache of compiled code for all; and no helpers that compile: each would write swapnet's statistics as well.
        env |= {"TORCHINDUCTOR_CACHE_DIR": str(self.args.dir / "inductor"), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        own = self.own_checkpoint(variant) if group and variant in OWN_COPY else None
        worker = Worker(self._argv(*more, checkpoint=own), group or cgroup.NoGroup(label), env, self.args.dir / f"{label}.log")
        worker.label = label
        return worker

    def await_model(self, worker):
        try:
            self.facts = worker.answer(TIMEOUT_SECONDS)
        except Ended as end:
            raise Ended(f"{end}: {worker.log_tail()[-300:]}") from None

    def stats(self, label):
        return self.args.dir / f"{label}.stats.json"

    def end(self, worker):
        """Statistics of a worker with swapnet; {} of others."""
        worker.quit(TIMEOUT_SECONDS)
        worker.close()
        path = self.stats(worker.label)
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


class PictureRuns(Runs):
    """Of one of torchvision's models (bench/lib/models.py)."""

    def __init__(self, args, model):
        self.args, self.model, self.facts = args, model, None
        self.python = pythons.with_torchvision()
        args.dir.mkdir(parents=True, exist_ok=True)

    def _argv(self, *more, checkpoint=None):
        return [self.python, str(variants.HERE / "worker.py"), "--model", self.model, "--variant", PLAIN, *more]


def parser_of(doc):
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    return parser


def mib(value):
    return f"{value / MIB:.1f}"
