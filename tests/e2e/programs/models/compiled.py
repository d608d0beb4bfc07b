"""torch.compile with inductor: a model of convolutions and linear layers. compiled.py OUT [INFERENCES]"""
import torch
from torch import nn

from _models import image
from _record import begin

record, args = begin()
inferences = int(args[0]) if args else 4


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(3 if k == 0 else 256, 256, 3, padding=1) for k in range(8))
        self.norm = nn.BatchNorm2d(256)
        self.linears = nn.ModuleList(nn.Linear(1024, 1024) for _ in range(8))
        self.scale = nn.Parameter(torch.randn(256, 16384 // 256 * 4))  # read by a fused kernel, never by an operator

    def forward(self, x):
        for conv in self.convs:
            x = torch.relu(conv(x))
        x = self.norm(x).mean((2, 3)).repeat(1, 4)
        for linear in self.linears:
            x = torch.relu(linear(x)) + 0.1
        return x[:, :256] * self.scale.sum(1) + torch.tanh(self.scale).mean(1)


model = Net().eval()
compiled = torch.compile(model)
with torch.no_grad():
    for i in range(inferences):
        record.tensor(f"output{i}", compiled(image(i)))
record.module("model", model)
record.save()
