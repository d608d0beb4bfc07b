"""BatchNorm over 32768 features in training mode: its operator rewrites running statistics its schema calls inputs."""
import torch
from torch import nn

from _record import begin

record, _ = begin()
model = nn.Sequential(*[layer for _ in range(2) for layer in (
    nn.Linear(256, 32768), nn.BatchNorm1d(32768), nn.ReLU(), nn.Linear(32768, 256))]).train()
with torch.no_grad():
    for i in range(6):
        x = torch.randn(4, 256, generator=torch.Generator().manual_seed(i))
        record.tensor(f"output{i}", model(x))
        record.tensor(f"mean{i}", model[1].running_mean)
    model.eval()
    for i in range(3):
        record.tensor(f"eval{i}", model(torch.ones(1, 256) * i))
record.module("model", model)
record.save()
