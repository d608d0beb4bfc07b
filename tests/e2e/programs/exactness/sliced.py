"""Weights that are larger than the budget leaves room for, and of which operators need a part at a time: sliced.py OUT
KIND, for every way in which PyTorch comes to multiply by a weight, or to look up rows of it."""
import ctypes
import sys
import threading

import torch
from torch import nn
from torch.nn import functional as F

from _record import begin, counter, read_bytes

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
            record.tensor(f"plain{i}", y @ square)  # as it is: its rows are what is summed over
            record.tensor(f"matmul{i}", y @ square.t())
            for name, refused in (("addmm", lambda: torch.addmm(bias, x, weight.t(), beta=1j)),
                                  ("addmv", lambda: torch.addmv(bias, weight, x[0], alpha=1j))):
                try:
                    refused()
                except Exception as error:
                    record.value(f"{name}{i} refused", f"{type(error).__name__}: {error}".splitlines()[0])
elif kind == "out":
    # Into buffers, as torch.compile's code has it; the last ones PyTorch resizes, turns round, or refuses.
    weight, bias = torch.randn(6272, 2048), torch.randn(6272)
    with torch.inference_mode():
        for i in range(PASSES):
            x, out = inputs(3, 2048, seed=i), torch.full((3, 6272), float("nan"))
            record.value(f"same{i}", torch.mm(x, weight.t(), out=out) is out)
            record.tensor(f"mm{i}", out)
            record.tensor(f"addmm{i}", torch.addmm(bias, x, weight.t(), beta=0.5, alpha=2, out=out))
            record.tensor(f"into its bias{i}", torch.addmm(out, x, weight.t(), out=out))
            turned = torch.empty(6272, 3).t()
            record.tensor(f"turned{i}", torch.mm(x, weight.t(), out=turned))
            record.value(f"strides{i}", turned.stride())
            record.tensor(f"resized{i}", torch.mm(x, weight.t(), out=torch.empty(0)))
            for name, other in (("type", torch.empty(3, 6272, dtype=torch.float64)), ("itself", x)):
                try:
                    torch.mm(x, weight.t(), out=other)
                    record.value(f"{name}{i} refused", "")
                except RuntimeError as error:
                    record.value(f"{name}{i} refused", str(error).splitlines()[0])
        record.tensor("weight", weight)
elif kind == "library":
    # The library's own number of threads, which PyTorch neither reads nor sets.
    blas = ctypes.CDLL("libopenblas.so.0")
    net = model(torch.float32, True, [(1024, 4096)] * 3)
    for threads in (4, 1, 3):
        blas.openblas_set_num_threads(threads)
        for i in range(PASSES):
            for k, layer in enumerate(net):
                with torch.inference_mode():
                    record.tensor(f"{threads} threads {i}.{k}", layer(inputs(16, 1024, seed=i)))
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
elif kind == "convs":
    # 4 to 9 MiB each; one in groups and one transposed, which come whole.
    net = nn.Sequential(nn.Conv2d(256, 512, 3, padding=1), nn.ReLU(), nn.Conv2d(512, 512, 3, padding=1, bias=False),
                        nn.ReLU(), nn.Conv2d(512, 512, 3, stride=2, padding=2, dilation=2), nn.ReLU(),
                        nn.Conv2d(512, 2048, 1), nn.ReLU(), nn.Conv2d(2048, 512, 1), nn.ReLU(),
                        nn.Conv2d(512, 512, 3, groups=2), nn.ConvTranspose2d(512, 256, 3)).eval()
    passes("net", net, 1, 256, 14, 14)
    passes("batch", net, 3, 256, 9, 13, count=4)
    passes("single", net[:10], 256, 14, 14, count=2)
    with torch.inference_mode():
        for i in range(2):
            last = inputs(1, 256, 14, 14, seed=i).contiguous(memory_format=torch.channels_last)
            record.tensor(f"last{i}", net(last))
    record.tensor("with gradients", net(inputs(1, 256, 14, 14)))
    for name, shape in (("channels", (1, 255, 14, 14)), ("too small", (1, 256, 0, 5))):
        try:
            net[0](inputs(*shape))
            record.value(name, False)
        except RuntimeError as error:
            record.value(name, str(error))
    # PyTorch goes by the strides of dimensions of size 1, too.
    wide = nn.Sequential(nn.Conv2d(1280, 1280, 1), nn.Conv2d(1280, 1280, 1)).eval().to(memory_format=torch.channels_last)
    with torch.inference_mode():
        for i in range(PASSES):
            for shape in ((1, 1280, 8, 8), (2, 1280, 1, 1)):
                y = wide(inputs(*shape, seed=i))
                record.tensor(f"wide{i}.{shape}", y)
                record.value(f"strides{i}.{shape}", y.stride())
    with torch.backends.mkldnn.flags(enabled=False):
        passes("native", net[:10], 1, 256, 14, 14, count=4)
elif kind == "large convs":
    # 9 and 18 MiB, none of which is in memory any more: their kernels make a copy of all that they are given.
    net = nn.Sequential(nn.Conv2d(512, 512, 3, padding=1), nn.ReLU(), nn.Conv2d(512, 1024, 3, padding=1), nn.ReLU(),
                        nn.Conv2d(1024, 512, 3, stride=2, bias=False), nn.ReLU(), nn.Conv2d(512, 4096, 1), nn.ReLU(),
                        nn.Conv2d(4096, 512, 1)).eval()
    torch.zeros(11, 1 << 18).sum()
    passes("net", net, 1, 512, 9, 9)
    passes("batch", net, 2, 512, 7, 9, count=2)
elif kind == "conv types":
    for dtype in (torch.bfloat16, torch.float64):
        net = nn.Sequential(*(nn.Conv2d(1024, 1024, 3, padding=1) for _ in range(3))).to(dtype).eval()  # 18, 72 MiB
        passes(f"{dtype}.", net, 1, 1024, 7, 7)
elif kind == "rows":
    table, half = nn.Embedding(16384, 768), nn.Embedding(16384, 768, padding_idx=3, dtype=torch.bfloat16)  # 48, 24 MiB
    layers = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(8)))
    picks = torch.Generator().manual_seed(5)
    record.notes["read_bytes"] = []
    with torch.inference_mode():
        for i in range(PASSES):
            record.tensor(f"layers{i}", layers(inputs(1, 1024, seed=i)))
            for shape in ((), (1,), (3, 7), (1, 300)):
                which = torch.randint(0, 16384, shape, generator=picks)
                before = read_bytes()
                record.tensor(f"table{i}.{shape}", table(which))
                if shape == (1,):
                    record.notes["read_bytes"].append(read_bytes() - before)
                record.tensor(f"half{i}.{shape}", half(which.int()))
            record.tensor(f"select{i}", torch.index_select(table.weight, 0, torch.tensor([5, 5, 16383, 0])))
            record.tensor(f"columns{i}", torch.index_select(half.weight, 1, torch.tensor([5, 2])))
            record.tensor(f"every{i}", table(torch.arange(0, 16384, 16384 // 2000)))
        try:
            table(torch.tensor([1, 16384]))
            record.value("refused", False)
        except IndexError as error:
            record.value("refused", str(error))
        table.weight[77] = 0.5
        half.weight[:100].mul_(2)
        table.weight.numpy()[99] = 0.25
        record.tensor("written", table(torch.tensor([76, 77, 78, 98, 99, 100])))
        record.tensor("halved", half(torch.arange(200)))
elif kind == "tied":
    # As language models have it: looked up at the beginning of a pass, multiplied by at its end.
    table, layers = nn.Embedding(16384, 768), nn.Sequential(*(nn.Linear(768, 768) for _ in range(8)))
    head = nn.Linear(768, 16384, bias=False)
    head.weight = table.weight
    token = torch.tensor([[7, 11]])
    with torch.inference_mode():
        for i in range(3 * PASSES):
            logits = head(layers(table(token)) + table(token))
            record.tensor(f"logits{i}", logits)
            token = (logits.argmax(-1) + i) % 16384
elif kind == "visitors":
    # Other batches and other numbers of threads, each once, some of which have other bits in slices; and then the
    # program goes on as before.
    net, threads = model(torch.float32, True, WIDE), torch.get_num_threads()
    passes("before", net, 1, 6272, count=10)
    for rows, count in ((64, threads), (16, 3)):
        torch.set_num_threads(count)
        passes(f"{rows} rows, {count} threads ", net, rows, 6272, count=1)
        torch.set_num_threads(threads)
        passes(f"between {rows} {count} ", net, 1, 6272, count=2)
    passes("settling", net, 1, 6272, count=12)
    slices = counter("slices")
    passes("after", net, 1, 6272)
    record.notes["slices"] = counter("slices") - slices
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
