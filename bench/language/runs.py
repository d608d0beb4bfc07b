"""Starts generator.py, plainly or with swapnet."""
import argparse
import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[1:1] = [str(HERE.parent / "lib")]

import cgroup
import pythons
import variants
from child import Worker
from plan import MIB

PLAIN, SWAPNET = "plain", "swapnet"
TIMEOUT_SECONDS = 120
OUT = variants.OUT


def add_options(parser):
    parser.add_argument("--python", default=pythons.PYTHON_213, help="an interpreter with transformers")
    parser.add_argument("--library", type=Path, default=variants.DEFAULT_LIBRARY, help="libswapnet.so")
    parser.add_argument("--dir", type=Path, default=OUT, help="work directory, on the disk that is measured")
    parser.add_argument("--tokens", type=int, default=16, help="of each answer")
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

    def _argv(self, *more):
        return [self.args.python, str(HERE / "generator.py"), "--model", self.model, "--checkpoint",
                str(self.checkpoint), "--router", self.router, "--tokens", str(self.args.tokens), *more]

    def start(self, variant, label, budget=None):
        """A worker whose model is there."""
        env = pythons.plain_environment()
        label = f"{self.model}.{variant}.{label}"
        if variant == SWAPNET:
            stats, store = self.stats(label), self.args.dir / "store"
            stats.unlink(missing_ok=True)
            store.mkdir(exist_ok=True)
            env = variants.swapnet_environment(self.args.library, budget, stats, store)
        worker = Worker(self._argv(), cgroup.NoGroup(label), env, self.args.dir / f"{label}.log")
        worker.label = label
        self.facts = worker.answer(TIMEOUT_SECONDS)
        return worker

    def stats(self, label):
        return self.args.dir / f"{label}.stats.json"

    def end(self, worker):
        """Statistics of a worker with swapnet; {} of others."""
        worker.quit()
        worker.close()
        path = self.stats(worker.label)
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def parser_of(doc):
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    return parser


def mib(value):
    return f"{value / MIB:.1f}"
