"""no_maps.py OUT PERCENT: a part of all mmap calls of the process fails while it infers; for a run under libfiu, whose
preload is asked through its own function. Python and glibc get along without; what the program sees must be right."""
import ctypes

import torch

from _models import mlp, rows
from _record import begin

record, args = begin()
model = mlp()
with torch.inference_mode():
    for i in range(2):
        record.tensor(f"before{i}", model(rows(i)))
    fiu = ctypes.CDLL(None)
    failing = hasattr(fiu, "fiu_enable_random")
    if failing:
        fiu.fiu_enable_random.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_float]
        assert fiu.fiu_enable_random(b"posix/mm/mmap", -1, None, 0, float(args[0]) / 100) == 0
    for i in range(8):
        record.tensor(f"without{i}", model(rows(i)))
        model[2 * i].weight.mul_(1.001)
    if failing:
        fiu.fiu_disable(b"posix/mm/mmap")
    for i in range(3):
        record.tensor(f"after{i}", model(rows(i)))
record.notes["failing"] = failing
record.module("model", model)
record.save()
