"""Inference straight from a loaded state_dict, without a model beside it: functional_load.py OUT PATH."""
import torch
from torch.nn import functional

from _models import rows
from _record import begin

record, (path,) = begin()
state = torch.load(path)
with torch.no_grad():
    for i in range(3):
        x = rows(i)
        for layer in range(0, 48, 2):
            x = torch.relu(functional.linear(x, state[f"{layer}.weight"], state[f"{layer}.bias"]))
        record.tensor(f"output{i}", x)
record.save()
