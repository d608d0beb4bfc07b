"""Matrix products whose weights are larger than the budget leaves room for: sliced.py OUT KIND, for every way in which
PyTorch comes to multiply by a weight."""
import sys
import threading

import torch
from torch import nn
from torch.nn import functional as F

from _record import begin

record, args = begin()
kind = args[0]
PASSES = 8


def inputs(*shape, dtype=torch.float32, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def model(dtype, bias, sizes):
    return nn.Sequential(*(nn.Linear(a, b, bias=bias) for a, b in sizes)).to(dtype).eval()


def passes(name, net, *shape, count=PASSES):
    dtype = next(net.parameters()).dtype
    with torch.inference_mode():
        for i in range(count):
            record.tensor(f"{name}{i}", net(inputs(*shape, dtype=dtype, seed=i)))


WIDE = [(6272, 2048), (2048, 6272), (6272, 1000)]  # 49, 49 and 24 MiB of floats

if kind in ("float32", "float64", "bfloat16", "float16"):
    dtype = getattr(torch, kind)
    passes("vector", model(dtype, True, WIDE), 1, 6272)
elif kind == "shapes":
    net = model(torch.float32, True, WIDE)
    bare = model(torch.float32, False, WIDE[:2])
    for rows in (1, 2, 7, 64):
        passes(f"rows{rows}.", net, rows, 6272, count=4)
    passes("three", net, 2, 3, 6272, count=4)
    passes("single", net, 6272, count=2)
    passes("bare", bare, 1, 6272, count=4)
    passes("bare3.", bare, 2, 3, 6272, count=4)
elif kind == "odd":
    # Rows that end within a page, a last slice that is not whole, and a weight whose rows never meet a granule.
    passes("odd", model(torch.float32, True, [(6016, 2111), (2111, 6016)]), 1, 6016)
elif kind == "products":
    weight, square = torch.randn(6272, 2048), torch.randn(4096, 4096)
    bias, wide = torch.randn(6272), torch.randn(3, 6272)
    with torch.inference_mode():
        for i in range(PASSES):
            x, y = inputs(3, 2048, seed=i), inputs(3, 4096, seed=i)
            record.tensor(f"addmm{i}", torch.addmm(bias, x, weight.t(), beta=0.5, alpha=2))
            record.tensor(f"full{i}", torch.addmm(wide, x, weight.t()))
            record.tensor(f"mm{i}", torch.mm(y, square.t()))
            record.tensor(f"plain{i}", y @ square)  # not transposed: cannot be cut along its rows
            record.tensor(f"matmul{i}", y @ square.t())
elif kind == "changes":
    net = model(torch.float32, True, WIDE)
    passes("before", net, 1, 6272)
    with torch.no_grad():
        net[0].weight[100:300] *= 2
        net[1].weight.numpy()[-1] = 0.5
    passes("after", net, 1, 6272)
    for i, layer in enumerate(net):
        record.tensor(f"weight{i}", layer.weight)
    net[1] = nn.Linear(2048, 6272)
    passes("replaced", net, 1, 6272)
elif kind == "gradients":
    net = model(torch.float32, True, WIDE[:2])
    for parameter in net.parameters():
        parameter.requires_grad_(False)
    for i in range(4):
        x = inputs(2, 6272, seed=i).requires_grad_()
        net(x).sum().backward()
        record.tensor(f"gradient{i}", x.grad)
elif kind == "threads":
    net = model(torch.float32, True, WIDE)
    found = {}

    def work(number):
        with torch.inference_mode():
            for i in range(PASSES):
                found[f"thread{number}.{i}"] = net(inputs(1, 6272, seed=100 * number + i))

    workers = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for name in sorted(found):
        record.tensor(name, found[name])
else:
    sys.exit(f"no such kind: {kind}")
record.save()
