#!/usr/bin/env python3
"""One variant of one model, serving inferences on request.

Requests are lines on stdin: "infer INDEX" or "quit"; each answer is one JSON line on stdout.
Between requests the process only waits in a read. Under swapnet this very file is run with
--variant plain: it knows nothing of swapnet."""
import argparse
import hashlib
import json
import os
import resource
import sys
import time

import torch

import models
import weights


def build(args):
    if args.variant == "plain":
        return models.build(args.model)
    if args.variant == "accelerate":
        return build_offloaded(args)
    model = models.build_untouched(args.model)
    if args.variant == "mmap":
        weights.map_into(model, args.weights)
    else:
        import double_buffer
        double_buffer.DoubleBuffer(model, args.weights, models.STREAMABLE_BYTES)
    return model


def build_offloaded(args):
    import accelerate
    import offload
    with accelerate.init_empty_weights():
        model = models.build(args.model)
    return offload.load(model, offload.place(model, args.room), args.checkpoint, args.offload)


def read_bytes():
    """Bytes this process had read from the disk so far: O_DIRECT reads and page faults alike."""
    with open("/proc/self/io", encoding="ascii") as file:
        for line in file:
            if line.startswith("read_bytes:"):
                return int(line.split()[1])
    return 0


def infer(name, model, index):
    data = models.make_input(name, index)
    cpu_before = time.process_time()
    start = time.perf_counter()
    output = model(data)
    seconds = time.perf_counter() - start
    return {"seconds": seconds,
            "hash": hashlib.sha256(output.contiguous().numpy().tobytes()).hexdigest(),
            "read_bytes": read_bytes(),
            "major_faults": resource.getrusage(resource.RUSAGE_SELF).ru_majflt,
            "cpu_before": cpu_before, "cpu_after": time.process_time()}


def take_stdout():
    """A private copy of stdout for answers, so that no library can print between them."""
    answers = os.fdopen(os.dup(1), "w", buffering=1, encoding="ascii")
    os.dup2(2, 1)
    return answers


def serve(name, model, answers):
    for line in sys.stdin:
        words = line.split()
        if words == ["quit"]:
            return
        if len(words) != 2 or words[0] != "infer":
            raise SystemExit(f"worker: unknown request: {line!r}")
        print(json.dumps(infer(name, model, int(words[1]))), file=answers)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, choices=models.NAMES)
    parser.add_argument("--variant", required=True, choices=("plain", "mmap", "double", "accelerate"))
    parser.add_argument("--weights", help="aligned weights file, for mmap and double")
    parser.add_argument("--checkpoint", help="a state_dict, for accelerate")
    parser.add_argument("--room", type=int, help="bytes of weights in memory, for accelerate")
    parser.add_argument("--offload", help="an empty directory, for accelerate")
    parser.add_argument("--threads", type=int, help="intra-operator threads")
    args = parser.parse_args()
    answers = take_stdout()
    if args.threads:
        torch.set_num_threads(args.threads)
    start = time.perf_counter()
    with torch.no_grad():
        model = build(args)
        print(json.dumps({"build_seconds": time.perf_counter() - start}), file=answers)
        serve(args.model, model, answers)


if __name__ == "__main__":
    main()
