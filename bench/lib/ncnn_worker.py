#!/usr/bin/env python3
"""The same network in ncnn, serving inferences on request (serving.py) in a process without PyTorch.

Single precision throughout, as in PyTorch, where ncnn would store weights and activations as fp16 by itself: half the
bytes would be another network. Outputs are compared with the plain program's; when they differ by more than rounding,
there is no more to measure."""
import argparse
from pathlib import Path

import ncnn
import numpy

import samples
import serving
from serving import Refused

FP16 = ("use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic")
# Each buys speed with a second form of the weights that is larger, or is made beside the first.
FAST = ("use_winograd_convolution", "use_sgemm_convolution", "use_packing_layout")


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
    return serving.infer_compared(lambda data: forward(net, data), image, plain, index)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", required=True, help="inputs and the plain program's outputs (samples.py)")
    parser.add_argument("--model", required=True, type=Path, help="the directory that ncnn_model.py has made")
    parser.add_argument("--lean", action="store_true", help="without what costs memory")
    args = parser.parse_args()
    answers = serving.take_stdout()
    plain = samples.load(args.samples)
    serving.serve_engine(answers, lambda: build(args.model, plain.threads, args.lean),
                         lambda net, index: infer(net, plain, index))


if __name__ == "__main__":
    main()
