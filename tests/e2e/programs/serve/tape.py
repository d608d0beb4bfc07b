"""Models as TorchScript files: forward() as PyTorch runs it, and the tape of the same file, as a whole and with two
requests in turns at every cut. argv: the serve backend, then names of FORMS or of torchvision's models."""
import typing

import torch
from torch import nn

import _models
from _outputs import data, flat, raw
from _record import begin
from serve_backend import Backend, in_turns

record, (path, *names) = begin()


class Branches(nn.Module):
    """What a flat list cannot say: a branch that depends on the request, a loop, and an assertion."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 8)

    def forward(self, x):
        assert x.dim() == 2, f"{x.dim()} dimensions"
        if bool(x.sum() > 0):
            x = self.first(x)
        else:
            x = self.second(x).relu()
        n = int(x.abs().sum()) % 3 + 1
        for i in range(n):
            x = torch.tanh(self.second(x)) + i
        return self.last(x)


class Containers(nn.Module):
    """Lists, tuples and dictionaries on the way and as the result; one list grows."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(64, 32), nn.Linear(64, 32)

    def forward(self, x, scale: float = 2.0, mask: typing.Optional[torch.Tensor] = None):
        parts = [self.a(x), self.b(x)]
        parts.append(parts[0] * scale)
        sizes: typing.List[int] = [1]
        sizes.append(x.size(0))
        whole = torch.cat(parts, 1) + float(sizes[1])
        if mask is not None:
            whole = whole * mask
        low, high = whole.chunk(2, 1)
        return {"low": low, "pair": (high, whole.argmax(1))}


class InPlace(nn.Module):
    """Changes its input, and views of what it computed."""

    def __init__(self):
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(3), nn.Conv2d(3, 4, 3, groups=1)

    def forward(self, x):
        x.add_(1)
        y = self.conv(torch.relu_(self.norm(x)))
        y[:, 0].mul_(0.5)
        z = y.view(-1)
        z += 1
        return y, x


class State(nn.Module):
    """Changes an attribute of its own."""

    def __init__(self):
        super().__init__()
        self.layer, self.calls = nn.Linear(64, 64), 0

    def forward(self, x):
        self.calls = self.calls + 1
        return self.layer(x) + float(self.calls > 0)


class Same(nn.Module):
    def forward(self, x, unread):
        return x


class Forked(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x):
        other = torch.jit.fork(self.a, x)
        return self.b(x) + torch.jit.wait(other)


def shape_of(x, tail: typing.Optional[typing.List[int]]) -> typing.List[int]:
    if tail is None:
        return [x.size(0)]
    tail.append(x.size(0))
    return tail


class OptionalList(nn.Module):
    """A list of constants that grows in each request."""

    def forward(self, x):
        return x.reshape(shape_of(x.reshape(-1), [1])) * 2


class Scratch(nn.Module):
    """Writes to its own buffer, and reads it later."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(64, 64), nn.Linear(64, 64)
        self.register_buffer("scratch", torch.zeros(3, 64))

    def forward(self, x):
        self.scratch.copy_(x)
        return self.b(torch.relu(self.a(x))) + self.scratch


def numbers(seed):
    return (_models.rows(seed, 3, 64),)


# name: (module, inputs by seed, traced?)
FORMS = {
    "convnet traced": (lambda: _models.convnet(channels=64, depth=6), lambda s: (_models.image(s),), True),
    "convnet scripted": (lambda: _models.convnet(channels=64, depth=6), lambda s: (_models.image(s),), False),
    "mlp traced": (lambda: _models.mlp(width=256, depth=8), lambda s: (_models.rows(s, 4, 256),), True),
    "mlp wide": (lambda: _models.mlp(depth=10), lambda s: (_models.rows(s),), True),
    "branches": (Branches, numbers, False),
    "containers": (Containers, numbers, False),
    "in place": (InPlace, lambda s: (_models.image(s, 2),), False),
    "state": (State, numbers, False),
    "same": (Same, lambda s: (_models.rows(s, 2, 3), _models.rows(s, 1, 1)), False),
    "forked": (Forked, numbers, False),
    "optional list": (OptionalList, numbers, False),
    "scratch": (Scratch, numbers, False),
    "transposed": (lambda: nn.ConvTranspose2d(16, 8, 3), lambda s: (_models.rows(s, 2, 16 * 25).view(2, 16, 5, 5),), True),
    "half": (lambda: nn.Linear(64, 64).bfloat16(), lambda s: (numbers(s)[0].bfloat16(),), True),
    "integers": (lambda: nn.Embedding(50, 8), lambda s: (torch.arange(6).view(2, 3) * (s + 1) % 50,), True),
}


def form(name):
    if name in FORMS:
        return FORMS[name]
    model, how = name.split()
    size = 299 if model == "inception_v3" else 224
    return lambda: _models.torchvision_model(model), lambda s: (_models.image(s, size=size),), how == "traced"


backend = Backend(path)
for name in names:
    make, inputs, traced = form(name)
    with torch.no_grad():
        module = make().eval()
        script = (torch.jit.trace(module, inputs(0), check_trace=False) if traced else torch.jit.script(module))
        file = name.replace(" ", "-") + ".pt"
        script.save(file)
        del module, script
        loaded = torch.jit.load(file).eval()
        plain = [raw(flat(loaded(*inputs(seed)))) for seed in range(2)]
        del loaded
    for seed in range(2):
        for i, content in enumerate(plain[seed]):
            record.data(f"{name}, request {seed}, output {i}", content)
    # Two tapes: whole in five groups, of which the second request's times make new ones, and one with every cut.
    usual, every = backend.load(file), backend.load(file, groups=1 << 20)
    for turn in range(4):
        record.check(f"{name}: whole, turn {turn}", data(usual(*inputs(turn % 2))) == plain[turn % 2])
    record.check(f"{name}: in turns", [data(r) for r in in_turns(every.begin(*inputs(0)), every.begin(*inputs(1)))] == plain)
    record.value(f"{name}: groups", every.groups)
    record.value(f"{name}: described", every.describe())
    record.value(f"{name}: weight bytes", every.weight_bytes)
    every.unload()
    usual.unload()
record.save()
