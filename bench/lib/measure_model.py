#!/usr/bin/env python3
"""Measure what the accounting needs of one model; write its aligned weights file if asked.

Prints one JSON object. Run plainly, in a process of its own."""
import argparse
import json
import statistics
import time

import torch

import models
import samples
import weights
from lane import INPUTS
from tensor_peak import peak_tensor_bytes


def layers(model, inputs, passes=5):
    """[[bytes of weights, part of a pass from here to the next layer]], in the order of execution. Of embeddings a pass
    reads rows only: they have no bytes here."""
    begun, own = [], {}
    for module in model.modules():
        sizes = [p.numel() * p.element_size() for p in module.parameters(recurse=False)]
        size = sum(n for n in sizes if n >= models.STREAMABLE_BYTES)
        if size and not isinstance(module, torch.nn.Embedding):
            own[module] = size
            module.register_forward_pre_hook(lambda m, _: begun.append((time.perf_counter(), own[m])))
    runs = []
    for _ in range(passes):
        begun.clear()
        begun.append((time.perf_counter(), 0))
        model(inputs)
        ends = [at for at, _ in begun[1:]] + [time.perf_counter()]
        runs.append([end - at for end, (at, _) in zip(ends, begun)])
    seconds = [statistics.median(found) for found in zip(*runs)]
    return [[size, each / sum(seconds)] for (_, size), each in zip(begun, seconds)]


def write_samples(name, model, path):
    inputs = [models.make_input(name, index) for index in range(INPUTS)]
    outputs = [model(each) for each in inputs]
    samples.save(path, samples.Samples(torch.stack(inputs).numpy(), torch.stack(outputs).numpy(),
                                       torch.get_num_threads()))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, choices=models.NAMES)
    parser.add_argument("--weights", help="where to write the weights; default: nowhere")
    parser.add_argument("--checkpoint", help="where to torch.save the state_dict; default: nowhere")
    parser.add_argument("--samples", help="where to write inputs and outputs; default: nowhere")
    parser.add_argument("--threads", type=int)
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    with torch.no_grad():
        model, build_peak = peak_tensor_bytes(lambda: models.build(args.model))
        model(models.make_input(args.model, 0))
        _, activations = peak_tensor_bytes(lambda: model(models.make_input(args.model, 0)))
        layered = layers(model, models.make_input(args.model, 0))
        if args.samples:
            write_samples(args.model, model, args.samples)
    if args.weights:
        weights.save(model, args.weights)
    if args.checkpoint:
        torch.save(model.state_dict(), args.checkpoint)
    total, streamable = models.weight_bytes(model)
    print(json.dumps({"weight_bytes": total, "streamable_bytes": streamable,
                      "activation_bytes": activations, "layers": layered,
                      "peak_alloc_bytes": max(build_peak, total + activations),
                      "threads": torch.get_num_threads(), "torch": torch.__version__}))


if __name__ == "__main__":
    main()
