"""Weights written between inferences, in each way a program has: a stale copy in the pool would show."""
import warnings

import torch
from torch import nn

from _models import mlp, rows
from _record import begin

record, _ = begin()
warnings.filterwarnings("ignore", message="TypedStorage is deprecated")
model = mlp()
weights = [m.weight for m in model if isinstance(m, nn.Linear)]
other = torch.randn(1024, 1024) * 0.02


def infer(name):
    for repeat in range(2):
        record.tensor(f"{name}.{repeat}", model(rows(repeat)))


with torch.no_grad():
    infer("before")
    infer("learned")
    for weight in weights[::3]:
        weight.mul_(1.01).add_(other, alpha=0.1)
    infer("in-place operators")
    weights[1].copy_(other)
    weights[2][100:200] = 0.01
    infer("copy_ and slice")
    weights[3].data.fill_(0.001)
    weights[4].data = weights[4].data + 0.001
    infer("data")
    weights[5].numpy()[7, :] += 1
    weights[6].view(-1).numpy()[::5] *= -1
    infer("numpy")
    torch.mm(other, other, out=weights[7].data)
    torch.add(weights[8], other, out=weights[8].data)
    infer("out=")
    torch._foreach_mul_([w.data for w in weights[9:15]], 0.99)
    infer("foreach")
    nn.init.orthogonal_(weights[15].data[:256, :256])
    weights[16].data.exponential_(50.0)
    infer("init")
    weights[17].data.storage()[5] = 3.0
    infer("storage")
record.module("model", model)

# An operator that reads its weight and, with max_norm, also rewrites it.
table = nn.Embedding(40000, 256, max_norm=1.0)
with torch.no_grad():
    for i in range(6):
        index = torch.randint(0, 40000, (64,), generator=torch.Generator().manual_seed(i))
        record.tensor(f"embedding{i}", table(index))
        model(rows(i))
record.tensor("table", table.weight)
record.save()
