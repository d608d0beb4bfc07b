#!/usr/bin/env python3
"""Started by tape.py: tape_worker.py LIBRARIES ROUNDS FILE...: each TorchScript model as PyTorch runs it and as its tape, in turns, in
this process. LIBRARIES: a build's lib/. Prints a line of JSON for each model."""
import json
import pathlib
import sys
import time

import torch

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "e2e" / "programs" / "shared"))

from serve_backend import Backend

SHAPE = (1, 3, 224, 224)
WARM = 4  # PyTorch's interpreter optimizes a graph in its first runs


def forward(module):
    def run(x):
        began = time.perf_counter()
        answer = module(x)
        return time.perf_counter() - began, answer.numpy().tobytes()
    return run


def tape(model):
    def run(x):
        request = model.begin(x)
        began = time.perf_counter()
        for _ in request.steps():
            pass
        seconds = time.perf_counter() - began
        (_, _, answer), = request.results().values()
        return seconds, answer
    return run


def measure(backend, file, rounds):
    """[(seconds of forward, seconds of the tape)] and whether all bits are equal. Where the weights lie differs from one
    loading to the next, and so does the speed: each is loaded first once."""
    pairs, same = [], True
    for tape_first in (False, True):
        model = backend.load(file) if tape_first else None
        module = torch.jit.load(file).eval()
        model = model or backend.load(file)
        ways = [forward(module), tape(model)]
        for n in range(WARM + rounds):
            x = torch.randn(SHAPE)
            found = {}
            for k in (0, 1) if n % 2 else (1, 0):
                found[k] = ways[k](x)
            same = same and found[0][1] == found[1][1]
            if n >= WARM:
                pairs.append((found[0][0], found[1][0]))
        groups = model.groups
        model.unload()
        del module, ways
    return {"pairs": pairs, "same": same, "groups": groups}


def main(libraries, rounds, *files):
    torch.manual_seed(1)
    backend = Backend(str(pathlib.Path(libraries) / "swapnet" / f"serve-{'.'.join(torch.__version__.split('.')[:2])}.so"))
    with torch.no_grad():
        for file in files:
            print(json.dumps(measure(backend, file, int(rounds))), flush=True)


main(*sys.argv[1:])
