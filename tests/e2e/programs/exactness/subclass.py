"""Weights behind a tensor subclass, whose code calls operators on them, as quantised weights do: subclass.py OUT."""
import torch
import torch.nn.functional as F

from _record import begin, status

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


class Watched(torch.Tensor):
    """Has memory of its own; the same operator runs again on it, where its code is left out. A clone is an ordinary tensor."""
    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        made = super().__torch_dispatch__(function, types, args, kwargs or {})
        return made if function is torch.ops.aten.clone.default else torch.Tensor._make_subclass(cls, made)


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
    plain, between = [weight.twice for weight in weights], status()
    for i in range(6):
        x = torch.randn(2, 1024).as_subclass(Watched)
        for weight in plain:
            x = F.relu(F.linear(x, weight)) / 8
        record.tensor(f"watched {i}", x.clone())
    if between:
        record.notes["window_hits"] = [between["window_hits"], status()["window_hits"] - between["window_hits"]]
record.save()
