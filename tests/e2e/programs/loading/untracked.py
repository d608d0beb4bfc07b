"""A model whose weights PyTorch did not allocate: untracked.py OUT array|frombuffer|read|shared|copied DIR. Numpy's arrays on the
heap, buffers of bytes, files mapped for reading only, shared memory; or copies of arrays, which are PyTorch's own."""
import os
import warnings

import numpy as np
import torch
from torch import nn

from _record import begin

warnings.filterwarnings("ignore")  # of arrays that may not be written
record, (how, directory) = begin()
WIDTH, COUNT = 1024, 8


def weight(i):
    array = np.random.default_rng(i).standard_normal((WIDTH, WIDTH), dtype=np.float32) / 20
    if how == "array":
        return torch.from_numpy(array)
    if how == "frombuffer":
        return torch.frombuffer(bytearray(array.tobytes()), dtype=torch.float32).reshape(WIDTH, WIDTH)
    if how == "read":
        path = f"{directory}/{os.getpid()}-{i}.npy"
        np.save(path, array)
        return torch.from_numpy(np.load(path, mmap_mode="r"))
    if how == "shared":
        return torch.from_numpy(array).share_memory_()
    return torch.tensor(array)


pressed = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(6)))  # more than the budget
weights = [nn.Parameter(weight(i), requires_grad=False) for i in range(COUNT)]
x = torch.ones(3, WIDTH)
with torch.no_grad():
    for i in range(4):
        y = pressed(x)
        for w in weights:
            y = torch.relu(nn.functional.linear(y, w))
        record.tensor(f"out{i}", y)
for i, w in enumerate(weights):
    record.tensor(f"w{i}", w)
record.save()
