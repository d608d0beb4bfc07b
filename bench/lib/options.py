"""What the command lines of the benchmarks have in common."""
import argparse
from pathlib import Path

import variants


def list_of(allowed):
    """An argparse type: names of `allowed`, separated by commas."""
    def parse(text):
        names = [name.strip() for name in text.split(",")]
        unknown = [name for name in names if name not in allowed]
        if unknown:
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; known: "
                                             f"{', '.join(allowed)}")
        return names
    return parse


def _speed(text):
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of MB/s")
    return int(text)


def add_output(parser):
    """What is measured, where, and how it is printed."""
    parser.add_argument("--json", metavar="FILE", help="write all results as JSON as well")
    parser.add_argument("--markdown", action="store_true", help="print Markdown tables")
    parser.add_argument("--library", type=Path, default=variants.DEFAULT_LIBRARY,
                        help="libswapnet.so; default: the release build")
    parser.add_argument("--disk", type=_speed, metavar="MB/S",
                        help="let all reads together be no faster than this, as on a slow disk")
    parser.add_argument("--dir", type=Path, default=variants.OUT,
                        help="work directory, on the disk to measure; default: bench/out")
