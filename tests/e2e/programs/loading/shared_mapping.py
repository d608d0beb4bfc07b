"""A checkpoint that is changed through a shared mapping between two loads: shared_mapping.py OUT DIR. Nothing but the
first store need change the file's times, where it lies in memory."""
import mmap
import os
import struct

import torch

from _record import begin

record, (directory,) = begin()
path = f"{directory}/{os.getpid()}.pth"
weight = torch.full((2048, 2048), 1.0)
torch.save({"w": weight}, path)
with open(path, "r+b") as file:
    at = file.read().find(struct.pack("<1024f", *[1.0] * 1024))
    mapped = mmap.mmap(file.fileno(), 0)
try:
    for turn, value in enumerate((2.0, 3.0)):
        mapped[at + 4096:at + 4100] = struct.pack("<f", value)
        loaded = torch.load(path)["w"]
        record.tensor(f"turn{turn}", loaded.sum(1))
        record.tensor(f"whole{turn}", loaded)
        del loaded
finally:
    os.unlink(path)
record.save()
