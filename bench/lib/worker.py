#!/usr/bin/env python3
"""One variant of one model, serving inferences on request (serving.py).

Under swapnet this very file is run with --variant plain: it knows nothing of swapnet."""
import argparse
import hashlib
import time

import torch

import models
import serving
import weights

DIGESTS = 32


def build(args):
    if args.variant == "plain":
        return models.build(args.model)
    if args.variant == "beside":
        import beside
        model = models.build(args.model)
        beside.Beside(model, args.weights, args.pass_bytes, models.STREAMABLE_BYTES, args.helper)
        return model
    if args.variant in ("loaded", "mapped"):
        return load(args)
    if args.variant == "accelerate":
        return build_offloaded(args)
    model = models.build_untouched(args.model)
    if args.variant == "mmap":
        weights.map_into(model, args.weights)
    else:
        import double_buffer
        double_buffer.DoubleBuffer(model, args.weights, models.STREAMABLE_BYTES)
    return model


def load(args):
    """As PyTorch 2 recommends for large models: the checkpoint's tensors become the model's."""
    with torch.device("meta"):
        model = models.build(args.model)
    model.load_state_dict(torch.load(args.checkpoint, mmap=args.variant == "mapped"), assign=True)
    return model


def build_offloaded(args):
    import accelerate
    import offload
    with accelerate.init_empty_weights():
        model = models.build(args.model)
    return offload.load(model, offload.place(model, args.room), args.checkpoint, args.offload)


def digest(output):
    """Of all bytes, part by part: where two outputs differ says what made them differ."""
    data = memoryview(output.contiguous().numpy()).cast("B")
    step = -(-len(data) // DIGESTS)
    return " ".join(hashlib.sha256(data[at:at + step]).hexdigest()[:16] for at in range(0, len(data), step))


def infer(name, model, index):
    return serving.infer(model, models.make_input(name, index), lambda output: {"hash": digest(output)})


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, choices=models.NAMES)
    parser.add_argument("--variant", required=True,
                        choices=("plain", "loaded", "mapped", "beside", "mmap", "double", "accelerate"))
    parser.add_argument("--weights", help="aligned weights file, for beside, mmap and double")
    parser.add_argument("--pass-bytes", type=int, help="to read in each pass, for beside")
    parser.add_argument("--helper", help="libbench-beside.so, for beside")
    parser.add_argument("--checkpoint", help="a state_dict, for loaded, mapped and accelerate")
    parser.add_argument("--room", type=int, help="bytes of weights in memory, for accelerate")
    parser.add_argument("--offload", help="an empty directory, for accelerate")
    parser.add_argument("--threads", type=int, help="intra-operator threads")
    args = parser.parse_args()
    answers = serving.take_stdout()
    if args.threads:
        torch.set_num_threads(args.threads)
    start = time.perf_counter()
    with torch.no_grad():
        model = build(args)
        serving.say(answers, {"build_seconds": time.perf_counter() - start,
                              "weight_bytes": models.weight_bytes(model)[0]})
        serving.serve(answers, lambda index: infer(args.model, model, index))


if __name__ == "__main__":
    main()
