"""hostile.py OUT LIBRARY: every hooked function with NULL and extreme arguments (support/hostile_calls.c), on a weight that has left
memory, and PyTorch's own allocator."""
import ctypes
import sys

import torch

from _models import mlp, rows
from _record import begin

record, args = begin()
library = ctypes.CDLL(args[0])
library.hostile_calls.restype = ctypes.c_char_p
library.hostile_calls.argtypes = [ctypes.c_void_p]
model = mlp()


def calls(name, tensor):
    lines = library.hostile_calls(tensor.data_ptr()).decode().splitlines()
    function = ""
    for number, line in enumerate(lines):
        function = function if line.startswith(" ") else line
        record.value(f"{name} {number} {function}", line)


def allocation(name, make):
    try:
        record.value(name, str(make().numel()))
    except (RuntimeError, MemoryError, OverflowError, TypeError) as error:
        record.value(name, f"{type(error).__name__}: {str(error).splitlines()[0]}")


with torch.no_grad():
    for i in range(2):
        record.tensor(f"before{i}", model(rows(i)))
    calls("weight", model[0].weight)
    for size in (0, 1, (1 << 62) - 1, 1 << 62, (1 << 63) - 4096, (1 << 63) - 1, -1):
        allocation(f"empty {size}", lambda: torch.empty(size, dtype=torch.uint8))
        allocation(f"storage {size}", lambda: torch.empty(0, dtype=torch.uint8).set_(torch.UntypedStorage(size)))
    for i in range(2):
        record.tensor(f"after{i}", model(rows(i)))
record.module("model", model)
record.save()
sys.stdout.flush()
