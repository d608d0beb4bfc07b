"""A mixture of experts that computes as transformers do, by aten::_grouped_mm: mixture.py OUT. In each step a few of the
experts have tokens; in the first steps, as of a prompt, nearly all."""
import random

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from _record import begin, read_bytes

record, _ = begin()
EXPERTS, CHOSEN, WIDTH, INNER, LAYERS, TOKENS = 16, 2, 512, 2048, 2, 200


def experts(rows, columns):
    """All of them different, and made in no time."""
    return nn.Parameter(torch.randn(1, rows, columns) * torch.linspace(0.02, 0.08, EXPERTS).view(-1, 1, 1))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(WIDTH, WIDTH)
        self.up = experts(INNER, WIDTH)
        self.down = experts(WIDTH, INNER)

    def forward(self, x, experts):
        x = torch.relu(self.dense(x))
        numbers, order = torch.sort(experts.flatten())
        rows = x[order // CHOSEN]
        ends = torch.cumsum(torch.bincount(numbers, minlength=EXPERTS), 0).to(torch.int32)
        inner = torch.relu(torch._grouped_mm(rows, self.up.transpose(1, 2), offs=ends))
        outer = torch._grouped_mm(inner, self.down.transpose(1, 2), offs=ends)
        return x + torch.empty_like(outer).index_copy_(0, order, outer).view(len(x), CHOSEN, WIDTH).sum(1)


torch.manual_seed(0)
torch.set_default_dtype(torch.bfloat16)
layers = nn.ModuleList(Layer() for _ in range(LAYERS)).eval()
choice = random.Random(1)
each = layers[0].up[0].nbytes + layers[0].down[0].nbytes
read, routed = [], []
with torch.inference_mode():
    for token in range(TOKENS):
        x = torch.randn(12 if token < 2 else 1, WIDTH, generator=torch.Generator().manual_seed(token),
                        dtype=torch.float32).bfloat16()
        before, chosen = read_bytes(), 0
        for layer in layers:
            routed_to = torch.tensor([choice.sample(range(EXPERTS), CHOSEN) for _ in x])
            x = layer(x, routed_to)
            chosen += len(set(routed_to.flatten().tolist()))
        record.tensor(f"token{token}", x)
        read.append(read_bytes() - before)
        routed.append(chosen * each)
    # What stands for tensors while a program is traced has no numbers, and no memory either.
    with FakeTensorMode() as mode:
        rows, ends = (mode.from_tensor(t) for t in (torch.ones(EXPERTS, WIDTH), torch.arange(1, EXPERTS + 1, dtype=torch.int32)))
    shape = torch._grouped_mm(rows, mode.from_tensor(layers[0].up).transpose(1, 2), offs=ends).shape
    assert shape == (EXPERTS, INNER)
record.notes["read_bytes"] = read
record.notes["routed_bytes"] = routed
record.notes["expert_bytes"] = LAYERS * EXPERTS * each
record.save()
