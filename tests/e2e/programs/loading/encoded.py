"""A float32 checkpoint whose weights came from a narrower type, or did not: encoded.py OUT KIND [corrupt]. KIND is bf16,
fp16, mixed (every other layer is neither) or full. `corrupt`: a byte of each copy in the store is changed before the
first inference."""
import glob
import os
import sys

import torch
from torch import nn

from _models import mlp, rows, undamped
from _record import begin

record, (kind, *rest) = begin()


class Model(nn.Module):
    """Rows of a table, layers of 4 MiB, and two of 20 MiB that are taken in slices."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(4096, 1024)
        self.front = mlp(depth=4)
        self.wide = undamped(nn.Linear(1024, 5120))
        self.narrow = undamped(nn.Linear(5120, 1024))
        self.back = mlp(depth=4)

    def forward(self, x):
        x = x + self.table(torch.arange(0, 4096, 512)).mean(0)
        return self.back(self.narrow(torch.relu(self.wide(self.front(x)))))


def narrowed(weight, i):
    if kind == "full" or (kind == "mixed" and i % 2):
        return weight
    return weight.to(torch.float16 if kind == "fp16" else torch.bfloat16).float()


def corrupt_copies():
    for path in glob.glob(os.environ.get("SWAPNET_STORE", "store") + "/*.swnstore"):
        with open(path, "r+b") as file:
            data = file.read(136)
            begin, end = (int.from_bytes(data[at:at + 8], "little") for at in (88, 112))
            assert 0 < begin < end
            for at in range(begin, end, 1 << 20):
                file.seek(at + 5)
                byte = file.read(1)
                file.seek(at + 5)
                file.write(bytes([byte[0] ^ 1]))


torch.manual_seed(1)
with torch.no_grad():
    source = Model()
    torch.save({k: narrowed(v, i // 2) for i, (k, v) in enumerate(source.state_dict().items())}, "model.pth")
    del source
    model = Model().eval()
    model.load_state_dict(torch.load("model.pth"))
    if rest == ["corrupt"] and "SWAPNET_BUDGET" in os.environ:
        corrupt_copies()
    for i in range(6):
        record.tensor(f"output{i}", model(rows(i)))
record.module("model", model)
record.save()
sys.stdout.flush()
