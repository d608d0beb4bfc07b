#!/usr/bin/env python3
"""swapnet-serve measured: many models in memory for four of them, the first answer of an idle model, other servers beside
it, what a request costs that computes nothing, and what a model's tape costs. See README.md, "Serving". The exit status is
1 if a goal is missed."""
import argparse
import json
import signal
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[1:1] = [str(HERE / "lib"), str(HERE / "serving")]

import bench_cgroup as cgroup
import pythons
import table
import variants
from plan import MIB

import first
import identity
import many
import peers
import tape

PARTS = {"many": many, "first": first, "peers": peers, "identity": identity, "tape": tape}


def engine_python(args):
    """The servers beside swapnet-serve have PyTorch 2.13 (peers.py), so it has the same there."""
    torch = args.torch or ("2.13" if args.part == "peers" else "1.13")
    return args.python or (pythons.PYTHON_113 if torch == "1.13" else pythons.PYTHON_213)


class Setup:
    """Where things are and how they are run."""

    def __init__(self, args):
        self.build = args.build.resolve()
        self.tracing = pythons.with_torchvision(None)
        self.python = engine_python(args)
        self.folder = args.dir.resolve() / "serve-bench"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.beside = args.beside * MIB
        self.group, no_limit = cgroup.find()
        self.is_markdown = args.markdown
        if no_limit:
            self.say(f"{no_limit}: running WITHOUT a memory limit")

    @staticmethod
    def say(text):
        print(f"bench: {text}", file=sys.stderr, flush=True)

    def print_table(self, columns, rows):
        print((table.markdown_grid if self.is_markdown else table.grid)(columns, rows) + "\n")


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser(prog="bench/serve.py", description=__doc__)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--build", type=Path, default=variants.DEFAULT_LIBRARY.parent.parent)
    common.add_argument("--dir", type=Path, default=variants.OUT, help="work directory, on the disk to measure; default: bench/out")
    common.add_argument("--torch", choices=("1.13", "2.13"),
                        help="the PyTorch of engines: Debian's, or .deps/torch-2.13; default: 1.13, in peers 2.13, as the others have")
    common.add_argument("--python", help="another interpreter, whose PyTorch engines use")
    common.add_argument("--beside", type=int, default=170, metavar="MIB",
                        help="what the limit leaves beside --memory for programs and their libraries; default: 170")
    common.add_argument("--models", type=lambda text: text.split(","), help="of torchvision, with a comma between them")
    common.add_argument("--json", type=Path, metavar="FILE", help="write all results as JSON as well")
    common.add_argument("--markdown", action="store_true", help="print Markdown tables")
    parts = parser.add_subparsers(dest="part", required=True)
    for name, part in PARTS.items():
        part.add_options(parts.add_parser(name, parents=[common], description=part.__doc__))
    args = parser.parse_args()
    failed, results = PARTS[args.part].run(Setup(args), args)
    if args.json:
        args.json.write_text(json.dumps(results))
    for text in failed:
        print(f"missed: {text}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
