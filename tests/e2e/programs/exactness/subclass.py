"""Weights behind a tensor subclass, whose code calls operators on them, as quantised weights do: subclass.py OUT."""
import torch
import torch.nn.functional as F

from _record import begin

record, _ = begin()


class Scaled(torch.Tensor):
    """Stands for half of a tensor."""
    @staticmethod
    def __new__(cls, twice):
        return torch.Tensor._make_wrapper_subclass(cls, twice.shape, dtype=twice.dtype)

    def __init__(self, twice):
        self.twice = twice

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        if function in (torch.ops.aten.t.default, torch.ops.aten.detach.default):
            return cls(function(args[0].twice))
        if function is torch.ops.aten.copy_.default:
            args[0].twice.copy_(args[1] * 2)
            return args[0]
        return function(*(arg.twice if isinstance(arg, cls) else arg for arg in args), **(kwargs or {})) / 2


with torch.no_grad():
    weights = [Scaled(torch.randn(1024, 1024)) for _ in range(12)]
    for i in range(6):
        x = torch.randn(2, 1024)
        for weight in weights:
            x = F.relu(F.linear(x, weight)) / 8
        record.tensor(f"pass {i}", x)
        weights[i].copy_(torch.randn(1024, 1024))
    for i, weight in enumerate(weights):
        record.tensor(f"weight {i}", weight.twice)
record.save()
