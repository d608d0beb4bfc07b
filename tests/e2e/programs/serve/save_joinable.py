"""Saves models whose requests may be joined, or may not, in the directory of the record: NAME.pt, and for each of 8 requests
NAME.SEED.in and what forward() answers, NAME.SEED.out. argv: that directory, NAME..."""
import os

import torch
from torch import nn

import _models
from _record import begin

WIDTH = 1024


class Each(nn.Module):
    """Many small operators, each of which computes each number by itself and rounds at most once."""

    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, width))

    def forward(self, x):
        for _ in range(24):
            x = torch.relu(x * self.scale) - 0.125
        return x


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def functions(x):
    for _ in range(8):
        x = torch.sigmoid(x) - 0.5
    return x


def over_requests(x):
    """Bits depend on other requests, but only if one of them has such a number."""
    for _ in range(8):
        x = torch.relu(x) * torch.where((x > 1e30).any(), 2.0, 1.0) - 0.25
    return x


def through_buffer(x):
    """The same of memory that is written in place, and read by its own name."""
    for _ in range(8):
        buffer = torch.zeros(x.size(0), WIDTH)
        buffer[:].copy_(x)
        x = torch.relu(buffer) * torch.where((buffer > 1e30).any(), 2.0, 1.0) - 0.25
    return x


class Counts(nn.Module):
    """Each request changes the model."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x):
        self.seen.add_(1)
        for _ in range(8):
            x = torch.relu(x) - 0.25
        return x + self.seen


class Chooses(nn.Module):
    """Likewise, but which of its tensors is changed depends on the request."""

    def __init__(self):
        super().__init__()
        self.register_buffer("above", torch.zeros(1))
        self.register_buffer("below", torch.zeros(1))

    def forward(self, x):
        if bool(x.sum() > 0):
            seen = self.above
        else:
            seen = self.below
        for _ in range(8):
            x = torch.relu(x) - 0.25
        seen.add_(1)
        return x + seen


class Asks(nn.Module):
    """What comes of the weight does not depend on its bytes alone, as in a matrix product that folds its batch."""

    def __init__(self, width, may_learn):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, width), may_learn)

    def forward(self, x):
        x = x * self.weight
        if self.weight.requires_grad:
            x = x + 1
        return x


class Statistics(nn.Module):
    """Likewise, by an operator whose schema does not say so."""

    def __init__(self, width):
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("variance", torch.ones(width))

    def forward(self, x):
        for _ in range(8):
            x = torch.relu(x) - 0.25
        return nn.functional.batch_norm(x.view(1, -1, 2), self.mean, self.variance, training=True).view(x.size()) + self.mean.sum()


def by_number(x):
    for _ in range(8):
        x = torch.relu(x) - (0.5 if bool(x.sum() > 1e30) else 0.25)
    return x


def over_first(x):
    for _ in range(8):
        x = torch.softmax(x, 0) - 0.25
    return x


def drawn(x):
    for _ in range(8):
        x = torch.relu(x) + 0 * torch.rand_like(x)
    return x


def in_place(x):
    """Writes to what a request brings along, through views of it, in each part of the model."""
    for _ in range(8):
        half = x[:, ::2]
        half.mul_(0.75)
        x.add_(0.125)
        half.sub_(torch.relu(x[:, 1::2]))
    return x


def fails_joined(x):
    for _ in range(8):
        assert x.size(0) < 3
        x = torch.relu(x) - 0.25
    return x


def widens(x):
    """Its requests are small, and what its steps read and write is wide: a megabyte of each request."""
    wide = x.repeat(1, 256)
    for _ in range(4):
        wide = torch.relu(wide + 0.25) * 0.875
    return wide[:, ::256] * 0.5


MODELS = {"in_place": (Function(in_place), WIDTH), "fails_joined": (Function(fails_joined), WIDTH), "widens": (Function(widens), WIDTH),
          "each": (Each(WIDTH), WIDTH), "tails": (Function(functions), WIDTH + 1), "functions": (Function(functions), WIDTH),
          "over_requests": (Function(over_requests), WIDTH), "by_number": (Function(by_number), WIDTH),
          "over_first": (Function(over_first), WIDTH), "drawn": (Function(drawn), WIDTH), "through_buffer": (Function(through_buffer), WIDTH),
          "learns": (Asks(WIDTH, True), WIDTH), "frozen": (Asks(WIDTH, False), WIDTH), "counts": (Counts(), WIDTH), "chooses": (Chooses(), WIDTH), "statistics": (Statistics(WIDTH // 2), WIDTH), "linears": (_models.mlp(WIDTH, 8), WIDTH)}

record, (where, *names) = begin()
with torch.no_grad():
    for name in names:
        model, width = MODELS[name]
        model = model.eval()
        path = os.path.join(where, f"{name}.pt")
        example = _models.rows(0, 1, width)
        (torch.jit.script(model) if name in ("by_number", "counts", "chooses", "statistics", "fails_joined", "learns", "frozen") else torch.jit.trace(model, example, check_trace=False)).save(path)
        for seed in range(8):
            x = _models.rows(seed, 1, width)
            for end, tensor in (("in", x), ("out", model(x.clone()))):
                with open(os.path.join(where, f"{name}.{seed}.{end}"), "wb") as out:
                    out.write(tensor.numpy().tobytes())
        record.value(name, os.path.getsize(path))
record.save()
