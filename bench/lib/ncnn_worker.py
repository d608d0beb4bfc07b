#!/usr/bin/env python3
"""The same network in ncnn, serving inferences on request (serving.py) in a process without PyTorch.

Single precision throughout, as in PyTorch, where ncnn would store weights and activations as fp16 by itself: half the
bytes would be another network. Outputs are compared with the plain program's; when they differ by more than rounding,
there is no more to measure."""
import argparse
import time
from pathlib import Path

import ncnn
import numpy

import samples
import serving

# Rounding makes 1e-6 of these networks; another of the plain program's inputs 1e-3.
TOLERANCE = 1e-4
FP16 = ("use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic")
# Each buys speed with a second form of the weights that is larger, or is made beside the first.
FAST = ("use_winograd_convolution", "use_sgemm_convolution", "use_packing_layout")


class Refused(Exception):
    """There is nothing to measure; the text says why and fits into a table cell."""


def build(directory, threads, lean):
    why = directory / "refused"
    if why.exists():
        raise Refused(why.read_text().strip())
    net = ncnn.Net()
    net.opt.num_threads = threads
    for option in (*FP16, *FAST) if lean else FP16:
        setattr(net.opt, option, False)
    for load, name in (net.load_param, "model.ncnn.param"), (net.load_model, "model.ncnn.bin"):
        if load(str(directory / name)):
            raise Refused("ncnn cannot load it")
    return net


def forward(net, image):
    """What pnnx writes into the program that it generates beside a model."""
    with net.create_extractor() as extractor:
        extractor.input("in0", ncnn.Mat(image).clone())
        failed, output = extractor.extract("out0")
        if failed:
            raise Refused("ncnn cannot compute it")
        return numpy.array(output)


def infer(net, plain, index):
    image = plain.inputs[index][0]  # has to outlive its Mat, which does not hold it

    def describe(output):
        deviation = plain.deviation(index, output)
        if not deviation <= TOLERANCE:
            raise Refused(f"other outputs than PyTorch's, by {deviation:.0e}")
        return {"deviation": deviation}
    return serving.infer(lambda data: forward(net, data), image, describe)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", required=True, help="inputs and the plain program's outputs (samples.py)")
    parser.add_argument("--model", required=True, type=Path, help="the directory that ncnn_model.py has made")
    parser.add_argument("--lean", action="store_true", help="without what costs memory")
    args = parser.parse_args()
    answers = serving.take_stdout()
    plain = samples.load(args.samples)
    start = time.perf_counter()
    try:
        net = build(args.model, plain.threads, args.lean)
        serving.say(answers, {"build_seconds": time.perf_counter() - start})
        serving.serve(answers, lambda index: infer(net, plain, index))
    except Refused as refused:
        serving.say(answers, {"refused": str(refused)})


if __name__ == "__main__":
    main()
