"""Steps of training for the steady state's counters: train_mlp.py OUT STEPS. SGD over linear layers."""
import torch

from _models import mlp, rows
from _record import begin

record, args = begin()
model = mlp(depth=16).train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(int(args[0])):
    optimizer.zero_grad()
    loss = model(rows(step)).square().mean()
    loss.backward()
    optimizer.step()
    record.tensor(f"loss{step}", loss)
record.module("model", model)
record.save()
