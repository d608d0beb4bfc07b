"""Convolutions whose kernels make a matrix of their input, as large as the budget or larger: striped.py OUT KIND. Float64,
and float32 without oneDNN, which has no such matrix. A large weight is read before and after, so that memory is short."""
import sys

import torch
from torch import nn

from _record import begin, counter

record, (kind,) = begin()
PASSES = 2
BALLAST = nn.Linear(2048, 4096, bias=False).eval()  # 32 MiB


def numbers(*shape, dtype, seed):
    """With all the bits of the type: products of fewer would be exact."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def convolve(name, net, *shape, dtype=torch.float64, passes=PASSES):
    """Notes in how many stripes that was done, and how often it was not since their bits are others."""
    net = net.to(dtype).eval()
    before = counter("stripes"), counter("stripes_refused")
    for i in range(passes):
        with torch.inference_mode():
            y = net(numbers(*shape, dtype=dtype, seed=i))
            record.tensor(f"{name}{i}", y)
            record.value(f"{name}{i} strides", y.stride())
            del y
    record.notes[name] = [counter("stripes") - before[0], counter("stripes_refused") - before[1]]


def ballast(name):
    with torch.inference_mode():
        for i in range(2):
            record.tensor(f"{name}{i}", BALLAST(numbers(1, 2048, dtype=torch.float32, seed=i)))


def native(*args, **more):
    with torch.backends.mkldnn.flags(enabled=False):
        convolve(*args, dtype=torch.float32, **more)


ballast("first")
if kind == "float64":
    same = nn.Conv2d(32, 32, 3, padding=1)
    convolve("plane", same, 1, 32, 128, 160)  # of 5 MiB 45
    convolve("other size", same, 1, 32, 96, 112)
    convolve("batch", same, 4, 32, 48, 112)  # 47
    convolve("strided", nn.Conv2d(16, 32, 7, stride=2, padding=3, bias=False), 1, 16, 192, 192)  # 55
    convolve("dilated", nn.Conv2d(32, 32, 3, dilation=2, padding=2), 1, 32, 128, 160)
    convolve("groups", nn.Conv2d(32, 32, 3, padding=(2, 1), groups=2), 1, 32, 126, 128)
    convolve("line", nn.Conv1d(32, 32, 9, padding=4), 1, 32, 16384)  # 36
    convolve("volume", nn.Conv3d(8, 16, 3, padding=1), 1, 8, 16, 48, 48)  # of 2 MiB 61
    # Rows that meet no block of pixels, and whose matrix does not repeat itself after a few MiB: whole, or in stripes.
    convolve("odd", nn.Conv2d(17, 35, 3, padding=1), 1, 17, 55, 61)
    # What is small comes whole; and again what was there before.
    convolve("small", nn.Conv2d(32, 32, 3, padding=1), 1, 32, 8, 8)
    convolve("again", same, 1, 32, 128, 160)
    before = counter("stripes")
    with torch.enable_grad():
        y = same(numbers(1, 32, 32, 64, dtype=torch.float64, seed=9))  # 4.5
        y.sum().backward()
        record.tensor("with gradients", y)
        record.tensor("gradient", same.weight.grad)
    record.notes["with gradients"] = [counter("stripes") - before, 0]
elif kind == "float32":
    native("batch", nn.Conv2d(16, 16, 3, padding=1), 8, 16, 96, 96)  # of 4.5 MiB 40
    native("plane", nn.Conv2d(32, 32, 3, padding=1), 1, 32, 128, 160)
    # With oneDNN there is nothing to cut.
    convolve("oneDNN", nn.Conv2d(32, 32, 3, padding=1), 1, 32, 128, 160, dtype=torch.float32)
elif kind == "one":
    convolve("plane", nn.Conv2d(32, 32, 3, padding=1), 1, 32, 96, 128)  # of 3 MiB 27
else:
    sys.exit(f"no such kind: {kind}")
ballast("last")
record.save()
