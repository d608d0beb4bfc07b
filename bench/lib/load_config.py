"""The options of the loading benchmark, and what is installed for it."""
import argparse
import dataclasses
import sys
from pathlib import Path

import load_run
import variants
from load_list import MODELS
from options import add_output, list_of
from pythons import BASELINES, PYTHON_113, PYTHON_213, imports

ROUNDS = 1


@dataclasses.dataclass
class Config:
    models: list
    variants: list
    rounds: int
    pythons: dict       # by kind of model: an interpreter that has what the model needs
    accelerate: dict    # by kind: (interpreter, PYTHONPATH) that has accelerate as well
    missing: list       # what is left out because it is not installed, in words
    library: Path
    out: Path
    threads: int | None
    timeout: float
    json: str | None
    markdown: bool
    keep: bool
    extra_env: dict     # for swapnet's variants only
    disk: int | None = None     # MB/s that all reads together are held to


def _installed(args):
    """(interpreters, those with accelerate, what is missing)."""
    pythons, accelerate, missing = {}, {}, []
    wanted = {"torchvision": (args.python_torchvision, "torch, torchvision"),
              "transformers": (args.python_transformers, "torch, transformers, safetensors")}
    with_accelerate = {
        "torchvision": (str(BASELINES / "accelerate-1.13" / "bin" / "python"), ""),
        "transformers": (args.python_transformers, str(BASELINES / "accelerate-2.13"))}
    for kind, (python, modules) in wanted.items():
        if not imports(python, modules):
            missing.append(f"{python} does not import {modules}: the {kind} models are left out")
            continue
        pythons[kind] = python
        python, path = with_accelerate[kind]
        if imports(python, f"{modules}, accelerate", path):
            accelerate[kind] = (python, path)
        else:
            missing.append(f"no accelerate for the {kind} models, see scripts/bench: left out")
    if not args.library.exists():
        missing.append(f"{args.library} is not built: the swapnet rows are left out")
    return pythons, accelerate, missing


def _parser():
    parser = argparse.ArgumentParser(
        prog="bench/load.py", description="Memory, time and bytes read from construction to the "
        "first inference, with a cold page cache: plain PyTorch, a mapped checkpoint, accelerate's "
        "disk offload, and swapnet without and with a block store.")
    parser.add_argument("--models", type=list_of(MODELS), default=list(MODELS), metavar="A,B",
                        help=f"of {', '.join(MODELS)}; default: all")
    short = list(load_run.NAMES)
    parser.add_argument("--variants", type=list_of(short), default=short, metavar="A,B",
                        help=f"of {', '.join(short)}; plain always runs")
    parser.add_argument("--rounds", type=int, default=ROUNDS,
                        help=f"runs of each variant; default: {ROUNDS}")
    parser.add_argument("--threads", type=int, help="PyTorch's threads; default: PyTorch's own")
    parser.add_argument("--timeout", type=float, default=180,
                        help="seconds to wait for loading or one inference; default: 180")
    add_output(parser)
    parser.add_argument("--keep", action="store_true", help="leave checkpoints and stores there")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE",
                        help="for the swapnet variants, e.g. SWAPNET_TRACE=FILE")
    parser.add_argument("--python-torchvision", default=PYTHON_113, metavar="PYTHON",
                        help=f"default: {PYTHON_113}")
    parser.add_argument("--python-transformers", default=PYTHON_213, metavar="PYTHON",
                        help="default: the one in .deps/torch-2.13")
    return parser


def parse(argv=None):
    parser = _parser()
    args = parser.parse_args(argv)
    if args.rounds < 1:
        parser.error("--rounds is at least 1")
    if any("=" not in item for item in args.env):
        parser.error("--env wants NAME=VALUE")
    pythons, accelerate, missing = _installed(args)
    models = [MODELS[name] for name in args.models if MODELS[name].kind in pythons]
    if not models:
        sys.exit("load: " + "; ".join(missing))
    chosen = [load_run.NAMES[name] for name in load_run.NAMES
              if name in args.variants or name == "plain"]
    return Config(models=models, variants=chosen, rounds=args.rounds, pythons=pythons,
                  accelerate=accelerate, missing=missing, library=args.library.resolve(),
                  out=args.dir.resolve(), threads=args.threads, timeout=args.timeout,
                  json=args.json, markdown=args.markdown, keep=args.keep,
                  extra_env=dict(item.split("=", 1) for item in args.env), disk=args.disk)
