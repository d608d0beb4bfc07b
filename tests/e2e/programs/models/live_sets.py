"""Operators that need more at once than the budget: an LSTM, `cat` of all weights, one huge batch, foreach over all, a sum
for which PyTorch makes a copy in another type."""
import torch
from torch import nn

from _models import mlp, rows
from _record import begin

record, args = begin()
what = args[0]
with torch.no_grad():
    if what == "lstm":
        model = nn.LSTM(1024, 1024, num_layers=8).eval()
        for i in range(3):
            out, (h, c) = model(rows(i, batch=6).reshape(6, 1, 1024))
            record.tensor(f"out{i}", out)
            record.tensor(f"c{i}", c)
    else:
        model = mlp(depth=8 if what == "batch" else 16)
        for i in range(3):
            record.tensor(f"output{i}", model(rows(i)))
        if what == "cat":
            record.tensor("cat", torch.cat([p.reshape(-1) for p in model.parameters()]))
            record.tensor("stack", torch.stack([m.weight for m in model if isinstance(m, nn.Linear)]).sum(0))
        elif what == "batch":
            record.tensor("batch", model(rows(1, batch=8000)))
        elif what == "foreach":
            parameters = list(model.parameters())
            record.tensor("norm", torch.stack(torch._foreach_norm(parameters)))
            torch._foreach_add_(parameters, torch._foreach_mul(parameters, 0.5))
        elif what == "promoted":
            total = torch.ones(3 << 19)
            record.tensor("total", total.add_(total.half()))
        for i in range(3):
            record.tensor(f"after{i}", model(rows(i)))
record.module("model", model)
record.save()
