"""Tied weights: an embedding that is the output layer too, a linear layer used twice, and a weight's transpose."""
import torch
import torch.nn.functional as F
from torch import nn

from _models import mlp
from _record import begin

record, _ = begin()


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(16000, 512)
        self.body = mlp(width=512, depth=16)
        self.head = nn.Linear(512, 16000, bias=False)
        self.head.weight = self.embed.weight
        self.body[8].weight = self.body[0].weight

    def forward(self, tokens):
        x = self.body(self.embed(tokens))
        x = F.linear(x, self.body[0].weight.t())
        return self.head(x)


model = Tied().eval()
with torch.no_grad():
    for i in range(5):
        tokens = torch.randint(0, 16000, (1, 6), generator=torch.Generator().manual_seed(i))
        record.tensor(f"output{i}", model(tokens))
        if i == 2:
            model.embed.weight[5:9] += 1.0  # through one name; the other must see it
    record.check("still tied", model.head.weight.data_ptr() == model.embed.weight.data_ptr())
record.module("model", model)
record.save()
