"""A few training steps: train.py OUT sgd|adam|adam-foreach. BatchNorm in training mode, then an evaluation."""
import torch
import torch.nn.functional as F

from _models import convnet, image
from _record import begin

record, args = begin()
model = convnet(channels=192, depth=8).train()
make = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-4),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-3, foreach=False),
    "adam-foreach": lambda p: torch.optim.Adam(p, lr=1e-3, foreach=True),
}[args[0]]
optimizer = make(model.parameters())
for step in range(5):
    optimizer.zero_grad()
    target = torch.randint(0, 1000, (8,), generator=torch.Generator().manual_seed(step))
    loss = F.cross_entropy(model(image(step, batch=8)), target)
    loss.backward()
    optimizer.step()
    record.tensor(f"loss{step}", loss)
record.module("model", model)
for i, state in enumerate(optimizer.state_dict()["state"].values()):
    for key, value in state.items():
        if torch.is_tensor(value):
            record.tensor(f"state{i}.{key}", value)
model.eval()
with torch.no_grad():
    for i in range(3):
        record.tensor(f"eval{i}", model(image(i)))
record.save()
