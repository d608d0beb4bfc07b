"""Saves a TorchScript file per name, NAME.pt in the directory of the record, and what its forward() answers: the inputs
and the outputs as files, NAME.SEED.in and NAME.SEED.out. argv: NAME:WIDTH:DEPTH:ROWS of an mlp, and of what it is given."""
import os
import shutil

import torch

import _models
from _record import begin

record, (where, *models) = begin()

with torch.no_grad():
    for spec in models:
        name, *numbers = spec.split(":")
        width, depth, count = map(int, numbers)
        file = os.path.join(where, f"{name}.pt")
        torch.jit.trace(_models.mlp(width, depth), _models.rows(0, count, width)).save(file)
        loaded = torch.jit.load(file).eval()
        for seed in range(3 if count < 1000 else 1):
            x = _models.rows(seed, count, width)
            for end, tensor in (("in", x), ("out", loaded(x))):
                with open(os.path.join(where, f"{name}.{seed}.{end}"), "wb") as out:
                    out.write(tensor.numpy().tobytes())
        record.value(name, os.path.getsize(file))
record.save()
