"""Saves a model per name in the directory of the record, NAME.pt of TorchScript or NAME.pt2 of torch.export, and what the
file's forward() answers: the inputs and the outputs as files, NAME.SEED.in and NAME.SEED.out. argv: NAME:WIDTH:DEPTH:ROWS
of an mlp, and of what it is given; NAME ends in ".pt2" for torch.export. NAME:WIDTH:DEPTH:ROWS:OTHER:LAYERS begins with
these layers of another one."""
import os
import shutil

import torch

import _models
from _record import begin

record, (where, *models) = begin()

made = {}
with torch.no_grad():
    for spec in models:
        name, *numbers = spec.split(":")
        width, depth, count = map(int, numbers[:3])
        made[name] = model = _models.mlp(width, depth)
        if numbers[3:]:
            model[:2 * int(numbers[4])].load_state_dict(made[numbers[3]][:2 * int(numbers[4])].state_dict())
        inputs = (_models.rows(0, count, width),)
        if name.endswith(".pt2"):
            file = os.path.join(where, name)
            torch.export.save(torch.export.export(model, inputs), file)
            loaded = torch.export.load(file).module()
        else:
            file = os.path.join(where, f"{name}.pt")
            torch.jit.trace(model, (inputs[0][:4],), check_trace=False).save(file)  # no step of an mlp depends on the rows
            loaded = torch.jit.load(file).eval()
        for seed in range(3 if count < 1000 else 1):
            x = _models.rows(seed, count, width)
            for end, tensor in (("in", x), ("out", loaded(x))):
                with open(os.path.join(where, f"{name}.{seed}.{end}"), "wb") as out:
                    out.write(tensor.numpy().tobytes())
        record.value(name, os.path.getsize(file))
record.save()
