"""The options of one benchmark run."""
import argparse
from dataclasses import dataclass

import plan
import pythons
import variants
from options import add_output, list_of

# As in models.py, which needs PyTorch; the command line must not.
MODELS = ("vgg19", "resnet101", "resnet152", "vit_b_16", "mobilenet_v2")
CURVE_MODELS = ("vgg19", "resnet152", "mobilenet_v2", "squeezenet1_1", "vit_b_16", "gpt2")
# Those with few tokens: a pass reads much for each millisecond that it computes.
FEW_TOKENS = ("bert_base", "vit_l_32")
KNOWN_MODELS = tuple(dict.fromkeys(MODELS + CURVE_MODELS + FEW_TOKENS))
QUICK_MODELS = ("mobilenet_v2", "resnet101")
POINTS = (0.5, 0.75, plan.FITS)
ABLATION_POINTS = (0.25, 0.5)
CURVE_POINTS = (0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 1.1)


@dataclass
class Config(variants.Setup):
    models: list
    points: list
    variants: list
    rounds: int
    passes: int
    timeout: float
    curve: str | None       # file to draw into
    json: str | None
    markdown: bool
    disk: int | None = None     # MB/s that all reads together are held to


def parse_points(text):
    try:
        return [plan.parse_point(item.strip().rstrip("%")) for item in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def parse(argv=None):
    parser = argparse.ArgumentParser(
        prog="bench/run.py", description="Latency, bytes read and memory of PyTorch models under "
        "a memory budget: plain, plain with reads beside it, memory-mapped, double-buffered by "
        "hand, with accelerate, in ncnn, and with swapnet.")
    parser.add_argument("--models", type=list_of(KNOWN_MODELS), metavar="A,B",
                        help=f"of {', '.join(KNOWN_MODELS)}; default: {', '.join(MODELS)}")
    parser.add_argument("--points", type=parse_points, metavar="P,Q",
                        help="percent of the streamable weights that the budget pays for, or "
                        "'fits'; default: 50,75,fits")
    parser.add_argument("--variants", type=list_of(variants.ALL), default=list(variants.ALL),
                        metavar="A,B", help=f"of {', '.join(variants.ALL)}; plain always runs, "
                        "accelerate and ncnn where scripts/bench has put them")
    parser.add_argument("--curve", metavar="FILE.png", help="latency against budget: draw it into "
                        f"this file, and go by default from {CURVE_POINTS[0] * 100:g} %% to "
                        f"{CURVE_POINTS[-1] * 100:g} %% for {', '.join(CURVE_MODELS)}")
    parser.add_argument("--ablations", action="store_true", help="swapnet with each of its parts "
                        "left out, instead of what users would pick; at 25 and 50 %%, 3 rounds")
    parser.add_argument("--rounds", type=int,
                        help="round-robins per point; default: 7, of a curve 3")
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
    models, points, rounds = MODELS, POINTS, 7
    if args.ablations:
        points, rounds = ABLATION_POINTS, 3
        args.variants = [variants.PLAIN, variants.SWAPNET, *variants.WITHOUT]
    if args.curve:
        models, points, rounds = CURVE_MODELS, CURVE_POINTS, 3
    elif args.quick:
        models, points, rounds = QUICK_MODELS, (0.5, plan.FITS), 3
    return Config(
        models=args.models or list(models), points=args.points or list(points),
        variants=args.variants, rounds=args.rounds or rounds, curve=args.curve,
        passes=args.passes, threads=args.threads,
        python=pythons.with_torchvision(args.python), library=args.library.resolve(),
        out=args.dir.resolve(), timeout=args.timeout, json=args.json, markdown=args.markdown,
        disk=args.disk)
