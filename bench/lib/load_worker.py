#!/usr/bin/env python3
"""One program that constructs a model, loads a checkpoint and serves inferences on request.

Answers are JSON lines: one when the libraries are there, one when the model is loaded, then one
for each "infer INDEX" on stdin, until "quit". Under swapnet this very file is run with --variant
plain: it knows nothing of swapnet."""
import argparse
import hashlib
import json
import os
import sys
import time
from pathlib import Path

import torch

import load_models
import offload
import weights_file
from load_list import MODELS
from tensor_peak import peak_tensor_bytes

LIBRARIES = {"torchvision": ("torchvision",),
             "transformers": ("transformers.models.gpt2.modeling_gpt2",
                              "transformers.models.llama.modeling_llama", "safetensors.torch")}


def disk_bytes():
    """Bytes this process had moved from and to the disk so far."""
    with open("/proc/self/io", encoding="ascii") as file:
        table = dict(line.split(": ") for line in file)
    return {"read_bytes": int(table["read_bytes"]), "write_bytes": int(table["write_bytes"])}


def load_plain(model, built, args):
    path = Path(args.checkpoint)
    if model.loading == "from_pretrained":
        return load_models.from_pretrained(model, path.parent)
    built.load_state_dict(torch.load(path))
    return built


def load_mmap(model, built, args):
    """Parameters become views of the mapped file."""
    if args.checkpoint.endswith(".safetensors"):
        from safetensors.torch import load_file
        state = load_file(args.checkpoint)
    else:
        state = torch.load(args.checkpoint, mmap=True)
    built.load_state_dict(state, strict=not args.checkpoint.endswith(".safetensors"), assign=True)
    if hasattr(built, "tie_weights"):
        built.tie_weights()
    return built


def load_accelerate(model, built, args):
    """As many layers in memory as its memory limit has room for, the others from disk."""
    if hasattr(built, "tie_weights"):
        built.tie_weights()
    placed = offload.place(built, args.budget)
    # transformers refuses a model of which nothing is in memory.
    if model.loading == "from_pretrained" and "cpu" in placed.values():
        return load_models.from_pretrained(model, Path(args.checkpoint).parent, device_map=placed,
                                           offload_folder=args.offload)
    return offload.load(built, placed, args.checkpoint, args.offload)


def constructs_itself(model, variant):
    """Whether loading makes the model, too, and the time that takes is to be told from loading."""
    return model.loading == "from_pretrained" and variant != "mmap"


def time_construction(model, narrow=False):
    start = time.perf_counter()
    load_models.construct_on_meta(model, narrow)
    return time.perf_counter() - start


def alone(model, args, answers):
    """The part of loading that is Python's and PyTorch's, by whatever means the weights come: the first load of a
    program, as the others are."""
    directory = load_models.alone(Path(args.checkpoint).parent)
    warm_up(model, args)
    built = None if model.loading == "from_pretrained" else load_models.construct_alone(model)
    making = time_construction(model, narrow=True) if built is None else 0
    weights_file.drop_page_cache(directory / model.file)
    start = time.perf_counter()
    if built is None:
        load_models.from_pretrained(model, directory)
    else:
        built.load_state_dict(torch.load(directory / model.file))
    print(json.dumps({"seconds": max(0, time.perf_counter() - start - making)}), file=answers)


def warm_up(model, args):
    """A program's first load imports modules, which is not what is measured here."""
    directory = load_models.alone(Path(args.checkpoint).parent)
    if constructs_itself(model, args.variant):
        load_models.from_pretrained(model, directory)
    elif model.file.endswith(".safetensors"):
        from safetensors.torch import load_file
        load_file(directory / model.file)
    else:
        torch.load(directory / model.file)


LOAD = {"plain": load_plain, "mmap": load_mmap, "accelerate": load_accelerate}


def construct(model, args):
    """The model as the variant wants it for loading; None where from_pretrained makes it."""
    if args.variant == "accelerate":
        import accelerate
        with accelerate.init_empty_weights():
            return load_models.construct(model)
    if args.variant == "mmap":
        return load_models.construct_on_meta(model)
    return None if model.loading == "from_pretrained" else load_models.construct(model)


def import_libraries(model, variant):
    for name in LIBRARIES[model.kind]:
        __import__(name)
    if variant == "accelerate":
        import accelerate  # noqa: F401


def infer(model, built, index):
    data = load_models.make_input(model, index)
    start = time.perf_counter()
    output = load_models.forward(model, built)(data)
    seconds = time.perf_counter() - start
    return {"seconds": seconds,
            "hash": hashlib.sha256(output.contiguous().numpy().tobytes()).hexdigest(),
            **disk_bytes()}


def made(model, args):
    """What base is measured of: a model that is constructed and not loaded, or, where loading does
    not construct one, the loaded one."""
    if model.loading == "from_pretrained":
        return load_plain(model, None, args)
    return load_models.construct(model)


def measure(model, args, answers):
    """Sizes for the accounting."""
    built, making = peak_tensor_bytes(lambda: made(model, args))
    infer(model, built, 0)
    _, activations = peak_tensor_bytes(lambda: infer(model, built, 0))
    total, streamable = load_models.streamable(built, load_models.STREAMABLE_BYTES)
    allocated = 0 if model.loading == "from_pretrained" else total  # else they lie in a mapped file
    print(json.dumps({"weight_bytes": total, "streamable_bytes": streamable,
                      "activation_bytes": activations, "making_bytes": making,
                      "inferring_bytes": allocated + activations, "torch": torch.__version__,
                      "threads": torch.get_num_threads()}), file=answers)


def serve(model, args, answers):
    """The program itself; with base it is as short as measure's."""
    making = 0
    if args.variant != "base":
        warm_up(model, args)
        making = time_construction(model) if constructs_itself(model, args.variant) else 0
    print(json.dumps(disk_bytes()), file=answers)
    start = time.perf_counter()
    built = made(model, args) if args.variant == "base" else construct(model, args)
    constructed = time.perf_counter()
    before = disk_bytes()
    if args.variant != "base":
        built = LOAD[args.variant](model, built, args)
    print(json.dumps({"construct_s": constructed - start + making,
                      "load_s": time.perf_counter() - constructed - making,
                      "constructed": before, **disk_bytes()}), file=answers)
    for line in sys.stdin:
        words = line.split()
        if words == ["quit"]:
            return
        print(json.dumps(infer(model, built, int(words[1]))), file=answers)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, choices=MODELS)
    parser.add_argument("--variant", required=True, choices=(*LOAD, "base", "measure", "alone", "save"))
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--budget", type=int, help="bytes for weights in memory, for accelerate")
    parser.add_argument("--offload", help="an empty directory, for accelerate")
    parser.add_argument("--threads", type=int, help="intra-operator threads")
    args = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w", buffering=1, encoding="ascii")
    os.dup2(2, 1)  # so that no library can print between the answers
    model = MODELS[args.model]
    if args.threads:
        torch.set_num_threads(args.threads)
    import_libraries(model, args.variant)
    with torch.no_grad():
        if args.variant == "save":
            load_models.save(model, Path(args.checkpoint).parent)
        elif args.variant == "measure":
            measure(model, args, answers)
        elif args.variant == "alone":
            alone(model, args, answers)
        else:
            serve(model, args, answers)


if __name__ == "__main__":
    main()
