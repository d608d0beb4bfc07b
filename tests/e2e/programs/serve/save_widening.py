"""Saves a TorchScript file of a model with an operator that writes a tensor and makes a copy of another one of its size
meanwhile. argv: the record, the file."""
import os

import torch

from _record import begin

record, (file,) = begin()


class Widening(torch.nn.Module):
    def forward(self, x):
        total = x.clone()
        return total.add_(total.half())[:1]


torch.jit.script(Widening()).save(file)
record.value("saved", os.path.getsize(file))
record.save()
