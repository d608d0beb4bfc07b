"""A network that runs its layers in another order on every call, skips some and repeats others."""
import random

import torch
from torch import nn

from _models import linear, rows
from _record import begin

record, _ = begin()
layers = nn.ModuleList(linear() for _ in range(24))
chance = random.Random(5)
with torch.no_grad():
    for i in range(12):
        order = [chance.randrange(24) for _ in range(20)] if i % 3 == 2 else chance.sample(range(24), 24)
        x = rows(i)
        for k in order:
            x = torch.tanh(layers[k](x))
        record.tensor(f"output{i}", x)
    # Back to a fixed order, and a branch on the data within it.
    for i in range(4):
        x = rows(i)
        for k, layer in enumerate(layers):
            if k % 4 or x.sum() > 0:
                x = torch.tanh(layer(x))
        record.tensor(f"branch{i}", x)
record.save()
