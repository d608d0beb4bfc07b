"""Makes the folder of a model.py, and says what its Model answers: files SEED.in and SEED.y.out, SEED.largest.out.
argv: the folder, in which net_model.py is model.py already."""
import importlib
import os
import sys

import torch

import _models
from _record import begin

record, (where,) = begin()
sys.path.insert(0, where)
layers = importlib.import_module("net_layers")
torch.save(_models.undamped(layers.network()).state_dict(), os.path.join(where, "weights.pt"))
model = importlib.import_module("model").Model()
model.load(where)
with torch.no_grad():
    for seed in range(3):
        x = torch.randn(2, 1024, generator=torch.Generator().manual_seed(seed))
        with open(os.path.join(where, f"{seed}.in"), "wb") as file:
            file.write(x.numpy().tobytes())
        for name, tensor in model(x).items():
            with open(os.path.join(where, f"{seed}.{name}.out"), "wb") as file:
                file.write(tensor.numpy().tobytes())
record.save()
