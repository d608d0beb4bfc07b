"""What PyTorch's profiler shows of operators that are computed in slices, from the first trial on: profiled.py OUT"""
import collections
import os

os.environ["KINETO_LOG_LEVEL"] = "99"  # it would say when, and in which process
import torch
from torch import nn
from torch.autograd import profiler
from torch.nn import functional as F

from _record import begin

record, _ = begin()

def inputs(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))

linear, conv = nn.Linear(6272, 2048), nn.Conv2d(1024, 1024, 3, padding=1)  # 49 and 36 MiB
square, experts = torch.randn(3072, 3072), torch.randn(12, 1024, 1024)
OPERATORS = {
    "addmm": lambda i: linear(inputs(3, 6272, seed=i)),
    "mm": lambda i: F.linear(inputs(3, 6272, seed=i), linear.weight),
    "summed": lambda i: inputs(3, 3072, seed=i) @ square,
    "mv": lambda i: linear.weight @ inputs(6272, seed=i),
    "convolution": lambda i: conv(inputs(1, 1024, 5, 5, seed=i)),
    "bmm": lambda i: torch.bmm(inputs(12, 3, 1024, seed=i), experts),
}
with torch.inference_mode():
    for i in range(8):
        for name, compute in OPERATORS.items():
            with profiler.profile() as seen:
                output = compute(i)
            # The profiler makes tensors of its own, and divides some, now one more, now one less: plainly as well.
            counts = collections.Counter(event.name for event in seen.function_events
                                         if event.name not in ("aten::empty", "aten::div_"))
            # PyTorch 1.13 calls some for each matrix of a batch, and so for those of one slice.
            record.value(f"operators of {name}{i}", sorted(counts) if name == "bmm" else dict(counts))
            record.tensor(f"{name}{i}", output)

record.save()
