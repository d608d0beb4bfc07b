"""Saves a TorchScript file of a model whose activations are many times its weights, and what it answers. argv: the record,
the file, the directory of SEED.in and SEED.out, pixels, how many inputs."""
import os

import torch

import _models
from _record import begin

record, (file, where, pixels, count) = begin()

with torch.no_grad():
    model = _models.convnet(channels=8, depth=4, classes=10)
    torch.jit.trace(model, _models.image(0, size=int(pixels)), check_trace=False).save(file)
    loaded = torch.jit.load(file).eval()
    for seed in range(int(count)):
        x = _models.image(seed, size=int(pixels))
        for end, tensor in (("in", x), ("out", loaded(x))):
            with open(os.path.join(where, f"{seed}.{end}"), "wb") as out:
                out.write(tensor.numpy().tobytes())
record.value("saved", os.path.getsize(file))
record.save()
