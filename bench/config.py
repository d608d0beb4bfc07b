"""The options of one benchmark run."""
import argparse
from dataclasses import dataclass

import plan
import variants
from options import add_output, list_of

# As in models.py, which needs PyTorch; the command line must not.
MODELS = ("vgg19", "resnet101", "resnet152", "vit_b_16", "mobilenet_v2")
QUICK_MODELS = ("mobilenet_v2", "resnet101")


@dataclass
class Config(variants.Setup):
    models: list
    points: list
    variants: list
    rounds: int
    passes: int
    timeout: float
    json: str | None
    markdown: bool


def _points(text):
    try:
        return [plan.parse_point(item.strip().rstrip("%")) for item in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def parse(argv=None):
    parser = argparse.ArgumentParser(
        prog="bench/run.py", description="Latency, bytes read and memory of PyTorch models under "
        "a memory budget: plain, memory-mapped, double-buffered by hand, and with swapnet.")
    parser.add_argument("--models", type=list_of(MODELS), metavar="A,B",
                        help=f"of {', '.join(MODELS)}; default: all")
    parser.add_argument("--points", type=_points, metavar="P,Q",
                        help="percent of the streamable weights that the budget pays for, or "
                        "'fits'; default: 50,75,fits")
    parser.add_argument("--variants", type=list_of(variants.ALL), default=list(variants.ALL),
                        metavar="A,B", help=f"of {', '.join(variants.ALL)}; plain always runs")
    parser.add_argument("--rounds", type=int, help="round-robins per point; default: 7")
    parser.add_argument("--passes", type=int, default=3,
                        help="timed inferences on end per variant and round; default: 3")
    parser.add_argument("--threads", type=int, help="PyTorch's threads; default: PyTorch's own")
    parser.add_argument("--timeout", type=float, default=60,
                        help="seconds to wait for one inference; default: 60")
    parser.add_argument("--quick", action="store_true",
                        help=f"{' and '.join(QUICK_MODELS)}, 50 %% and fits, 3 rounds")
    add_output(parser)
    parser.add_argument("--python", help="interpreter with torch; default: this or the system's")
    args = parser.parse_args(argv)
    if (args.rounds is not None and args.rounds < 1) or args.passes < 1:
        parser.error("--rounds and --passes are at least 1")
    return Config(
        models=args.models or list(QUICK_MODELS if args.quick else MODELS),
        points=args.points or ([0.5, plan.FITS] if args.quick else [0.5, 0.75, plan.FITS]),
        variants=args.variants, rounds=args.rounds or (3 if args.quick else 7),
        passes=args.passes, threads=args.threads,
        python=variants.python_with_torch(args.python), library=args.library.resolve(),
        out=args.dir.resolve(), timeout=args.timeout, json=args.json, markdown=args.markdown)
