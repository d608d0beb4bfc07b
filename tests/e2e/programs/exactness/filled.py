"""Tensors larger than the budget that are filled with random numbers, in every way in which models do: filled.py OUT"""
import torch
from torch import nn

from _record import begin

record, _ = begin()
NUMBERS = 5 * (1 << 20) + 7  # 20 MiB of floats and a bit

for dtype in (torch.float32, torch.float64, torch.bfloat16):
    tensor = torch.empty(NUMBERS * 4 // torch.finfo(dtype).bits * 8 + 7, dtype=dtype)
    tensor.uniform_(-2, 3)
    record.tensor(f"uniform {dtype}", tensor)
    tensor.normal_(0.5, 2)
    record.tensor(f"normal {dtype}", tensor)
    record.tensor(f"next {dtype}", torch.rand(5))
    del tensor

tensor = torch.empty(NUMBERS)
generator = torch.Generator().manual_seed(3)
tensor.normal_(generator=generator)
record.tensor("own generator", tensor)
record.tensor("its next", torch.rand(5, generator=generator))
tensor[100:].uniform_()  # not all of it
record.tensor("part", tensor)
try:
    tensor.uniform_(1, 0)
except RuntimeError:
    record.tensor("refused", tensor)
record.tensor("randn", torch.randn(NUMBERS))
layer = nn.Linear(2500, 2099)
nn.init.normal_(layer.weight, 0, 0.01)
record.module("layer", layer)
record.tensor("after all", torch.rand(5))
record.save()
