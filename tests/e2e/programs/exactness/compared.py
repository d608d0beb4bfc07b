"""Weights that are compared with each other, as TorchScript does when it looks for equal constants: compared.py OUT."""
import itertools

import torch

from _record import begin, counter

record, _ = begin()
with torch.no_grad():
    weights = [torch.randn(1024, 1024) for _ in range(12)]
    for _ in range(2):
        for weight in weights:
            torch.mm(torch.ones(1, 1024), weight)
    before = counter("streamed_bytes")
    record.check("all differ", not any(torch.equal(a, b) for a, b in itertools.combinations(weights, 2)))
    record.notes["streamed_bytes"] = [before, counter("streamed_bytes")]
    weights[3].copy_(weights[2])
    record.check("equal", torch.equal(weights[2], weights[3]))
    weights[3][-1, -1] += 1
    record.check("the last number differs", not torch.equal(weights[2], weights[3]))
    weights[4].fill_(0.0)
    weights[5].fill_(-0.0)
    record.check("equal, with other bits", torch.equal(weights[4], weights[5]))
    weights[6].fill_(float("nan"))
    record.check("not equal to itself", not torch.equal(weights[6], weights[6]))
    for i, weight in enumerate(weights):
        record.tensor(f"weight {i}", weight)
record.save()
