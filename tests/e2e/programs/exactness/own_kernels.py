"""Kernels of the program's own, registered for operators of PyTorch's, before and after there is something to stream."""
import hashlib
import warnings

import torch
from torch import nn

from _models import rows
from _record import begin

record, _ = begin()
warnings.filterwarnings("ignore")  # PyTorch says that they stand before its own
library = torch.library.Library("aten", "IMPL")
layers = [nn.Linear(700, 700) for _ in range(4)]
kept = []


def seven(a, b):
    """Keeps its right factor, and computes something else."""
    if b.numel() == 700 * 700:
        array = b.t().detach().numpy()
        kept.append((array, hashlib.sha256(array).digest()))
    return torch.full((a.shape[0], b.shape[1]), 7.0)


library.impl("mm", seven, "CPU")
record.value("before", float(torch.mm(torch.ones(2, 3), torch.ones(3, 2)).sum()))
layers += [nn.Linear(700, 700) for _ in range(26)]
with torch.no_grad():
    for i in range(4):
        x = rows(i, width=700)
        for k, layer in enumerate(layers):
            record.tensor(f"mm{i}.{k}", torch.mm(x, layer.weight.t()))
            x = layer(x)
        record.tensor(f"output{i}", x)
library.impl("addmm", lambda bias, a, b, beta=1, alpha=1: torch.full((a.shape[0], b.shape[1]), 5.0), "CPU")
with torch.no_grad():
    for k, layer in enumerate(layers):
        record.tensor(f"addmm{k}", layer(rows(k, width=700)))
record.value("kept and changed", sum(hashlib.sha256(array).digest() != want for array, want in kept))
record.check("kernel was called", len(kept) == 4 * len(layers))
record.save()
