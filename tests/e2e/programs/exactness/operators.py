"""Operators whose weight is larger than the budget, of each kind that is computed in slices, looked up by row, or
neither: operators.py OUT KIND DTYPE. Weights have as many bytes in every type."""
import sys

import torch
from torch import nn
from torch.nn import functional as F

from _record import begin

record, (kind, name) = begin()
dtype = getattr(torch, name)
PASSES = 5
WIDTH = {8: 832, 4: 1152, 2: 1664}[torch.empty(0, dtype=dtype).element_size()]


def numbers(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def many(n):
    """A dimension of n floats, or of what takes as many bytes."""
    return n * 4 // torch.empty(0, dtype=dtype).element_size()


def result(what, found):
    for i, tensor in enumerate(found if isinstance(found, (tuple, list)) else [found]):
        if isinstance(tensor, torch.Tensor):
            record.tensor(f"{what}.{i}", tensor)
            record.value(f"{what}.{i} strides", tensor.stride())


def module(net):
    return net.to(dtype).eval()


def weight(*shape):
    return (torch.randn(*shape) / 32).to(dtype)


def passes(step):
    """Only what has lived for a while counts as a weight: this many operators, none of which has one."""
    with torch.inference_mode():
        for _ in range(80):
            torch.zeros(1 << 16) + 1
        for i in range(PASSES):
            step(i)


def net_passes(net, *shape):
    passes(lambda i: result(f"pass{i}", net(numbers(*shape, seed=i))))


if kind == "conv1d":  # 20 MiB each
    net_passes(module(nn.Sequential(nn.Conv1d(1024, many(1024), 5, padding=2), nn.ReLU(),
                                    nn.Conv1d(many(1024), 1024, 5, stride=2, bias=False))), 1, 1024, 9)
elif kind == "conv3d":  # 27
    net_passes(module(nn.Sequential(nn.Conv3d(256, many(1024), 3, padding=1), nn.ReLU(),
                                    nn.Conv3d(many(1024), 256, 3, dilation=(1, 2, 2), padding=(0, 2, 2)))),
               1, 256, 3, 5, 5)
elif kind == "grouped":  # 18, in groups of 2.25 MiB
    net_passes(module(nn.Sequential(nn.Conv2d(2048, many(2048), 3, padding=1, groups=8), nn.ReLU(),
                                    nn.Conv2d(many(2048), 2048, 3, padding=1, groups=8, bias=False))), 2, 2048, 4, 4)
elif kind == "transposed":  # 18: its rows are what is summed over
    net_passes(module(nn.Sequential(nn.ConvTranspose2d(1024, many(512), 3), nn.ReLU(),
                                    nn.ConvTranspose2d(many(512), 1024, 3, groups=1))), 1, 1024, 4, 4)
elif kind in ("lstm", "gru"):  # 14 and 20, 10 and 15
    net = module((nn.LSTM if kind == "lstm" else nn.GRU)(768, WIDTH, batch_first=True))
    passes(lambda i: result(f"pass{i}", net(numbers(2, 3, 768, seed=i))[0]))
elif kind == "attention":  # 15 and 5
    net = module(nn.MultiheadAttention(WIDTH, 8, batch_first=True))

    def attend(i):
        x = numbers(2, 3, WIDTH, seed=i)
        result(f"fast{i}", net(x, x, x, need_weights=False))
        with torch.inference_mode(False):  # and with gradients, one operator after the other
            result(f"slow{i}", net(x.clone(), x.clone(), x.clone())[0].detach())

    passes(attend)
elif kind == "cross":  # parts of one weight, for queries and for what they look at
    net = module(nn.MultiheadAttention(WIDTH, 8, batch_first=True))

    def attend(i):
        x, y, z = (numbers(2, 3, WIDTH, seed=s * PASSES + i) for s in range(3))
        result(f"two{i}", net(x, y, y))
        result(f"three{i}", net(x, y, z, need_weights=False))

    passes(attend)
elif kind == "encoder":  # 12, 16 and 16
    net = module(nn.TransformerEncoderLayer(1024, 8, many(4096), batch_first=True, activation="gelu"))
    net_passes(net, 2, 5, 1024)
elif kind == "batches":  # 16 each, matrices of 2 MiB
    one, other = weight(8, 512, many(1024)), weight(8, many(1024), 512)
    bias = weight(8, 1, many(1024))

    def multiply(i):
        x, y = numbers(8, 3, 512, seed=i), numbers(8, many(1024), 2, seed=i)
        result(f"bmm{i}", torch.bmm(x, one))
        result(f"transposed{i}", torch.bmm(x, other.transpose(1, 2)))
        result(f"left{i}", torch.bmm(one, y))
        result(f"baddbmm{i}", torch.baddbmm(bias, x, one, beta=0.5, alpha=2))
        result(f"einsum{i}", torch.einsum("bmk,bkn->bmn", x, one))
        result(f"some{i}", torch.bmm(x[3:7], one[3:7]))

    passes(multiply)
elif kind == "experts":  # 32: of each, what is asked for
    up, down = weight(16, many(1024), 512), weight(16, 512, many(1024))

    def route(i):
        x = numbers(3, 512, seed=i)
        for expert in ((3 * i) % 16, (5 * i + 7) % 16):
            y = F.linear(x, up[expert])
            result(f"up{i}.{expert}", y)
            result(f"down{i}.{expert}", F.linear(F.relu(y), down[expert]))

    passes(route)
elif kind == "vectors":  # 16
    one, bias = weight(many(4096), 1024), weight(many(4096))

    def multiply(i):
        x, y = numbers(1024, seed=i), numbers(1024, 5, seed=i)
        result(f"mv{i}", torch.mv(one, x))
        result(f"addmv{i}", torch.addmv(bias, one, x, beta=0.5))
        result(f"left{i}", one @ y)
        result(f"leftbias{i}", torch.addmm(bias[:, None], one, y))
        result(f"columns{i}", F.linear(numbers(1024, 3, seed=i).t(), one))  # of an input that is not contiguous

    passes(multiply)
elif kind == "sums":  # 32 each, multiplied by as they are: a row of the weight is what is summed over
    one, other, bias = weight(8192, many(1024)), weight(16384, many(512)), weight(many(512))

    def add_up(i):
        for rows in (64, 7):
            x, y = numbers(rows, 8192, seed=i), numbers(rows, 16384, seed=i)
            result(f"mm{i}.{rows}", x @ one)
            result(f"addmm{i}.{rows}", torch.addmm(bias, y, other))
        result(f"scaled{i}", torch.addmm(numbers(7, 1, seed=i), x, one, beta=0.5, alpha=2))
        result(f"forgotten{i}", torch.addmm(torch.full((many(512),), float("nan"), dtype=dtype), y, other, beta=0))
        result(f"three{i}", numbers(2, 3, 8192, seed=i) @ one)
        result(f"columns{i}", numbers(16384, 5, seed=i).t() @ other)
        result(f"some{i}", numbers(3, 2048, seed=i) @ one[1024:3072])

    passes(add_up)
elif kind == "bags":  # 48
    ids = torch.Generator().manual_seed(3)
    table = weight(many(16384), 768)
    padding = 77

    def look_up(i):
        which = torch.randint(0, len(table), (40,), generator=ids)
        which[7] = which[9] = padding if i % 2 else 5
        offsets = torch.tensor([0, 4, 4, 11, 30])
        for mode in ("sum", "mean", "max"):
            result(f"{mode}{i}", F.embedding_bag(which, table, offsets, mode=mode))
            result(f"{mode} padding{i}", F.embedding_bag(which, table, offsets, mode=mode, padding_idx=padding))
            result(f"{mode} square{i}", F.embedding_bag(which.int().view(5, 8), table, mode=mode))
        last = torch.tensor([0, 4, 40])
        result(f"last{i}", F.embedding_bag(which, table, last, mode="sum", include_last_offset=True))
        result(f"weighted{i}", F.embedding_bag(which, table, offsets, mode="sum", per_sample_weights=numbers(40, seed=i)))

    passes(look_up)
    learned = table.clone().requires_grad_()
    F.embedding_bag(torch.tensor([5, 9, 5, 11]), learned, torch.tensor([0, 2]), mode="mean").sum().backward()
    result("gradient", learned.grad[:20])
    for wrong in (-1, len(table)):
        try:
            F.embedding_bag(torch.tensor([1, wrong]), table, torch.tensor([0]))
            record.value(f"refused{wrong}", False)
        except (IndexError, RuntimeError) as error:
            record.value(f"refused{wrong}", type(error).__name__)
elif kind == "lookups":  # 48
    ids = torch.Generator().manual_seed(3)
    table = weight(many(16384), 768)

    def look_up(i):
        which = torch.randint(-len(table), len(table), (24,), generator=ids)
        result(f"index{i}", table[which])
        for shape in ((4, 6), (1, 24), (24, 1), (2, 1, 12)):
            result(f"index{i}{shape}", table[which.view(shape)])
        result(f"strided{i}", table[which.view(4, 6).t()])
        result(f"both{i}", table[which, torch.arange(24)])
        result(f"columns{i}", table[:, which[:3] % 768])
        rows = (which % len(table))[:, None]
        result(f"gather{i}", torch.gather(table, 0, rows.expand(24, 768)))
        result(f"narrow gather{i}", torch.gather(table, 0, rows.expand(24, 100)))
        result(f"single{i}", table[int(which[0])])

    passes(look_up)
    mask = torch.zeros(len(table), dtype=torch.bool)
    mask[5:9] = True
    result("mask", table[mask])
    for wrong in (len(table), -len(table) - 1):
        try:
            table[torch.tensor([1, wrong])]
            record.value(f"refused{wrong}", False)
        except IndexError as error:
            record.value(f"refused{wrong}", str(error))
    table[70] = 0.5
    if dtype != torch.bfloat16:
        table.numpy()[71] = 0.25
    result("written", table[torch.tensor([69, 70, 71, 72])])
else:
    sys.exit(f"no such kind: {kind}")
record.save()
