"""Models of TorchScript that change what outlives a request, in ways that the list of their operators does not show, and
some that only look so. Each is run by PyTorch and as a tape: requests one after the other, then two at a time, all of
whose steps are done before the first one's answer is taken. argv: the serve backend; then
names of models, or all."""
import resource
import threading
import typing

import torch
from torch import nn

from _outputs import data, flat, raw
from _record import begin
from serve_backend import Backend, ServeError, in_turns

record, (path, *names) = begin()


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(4, 4)


class Buffers(nn.Module):
    """Two buffers of equal bytes, as long as nobody writes to them."""

    def __init__(self):
        super().__init__()
        self.register_buffer("k", torch.zeros(2, 4))
        self.register_buffer("v", torch.zeros(2, 4))


class NoGrad(Layer):
    def forward(self, x):
        with torch.no_grad():
            y = self.l(x)
        return self.l(y)


class Recorded(Layer):
    def forward(self, x):
        with torch.autograd.profiler.record_function("part"):
            return self.l(x) + 1


class Autocast(Layer):
    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.l(x)
        return y.float() * 2


class LastAnswer(nn.Module):
    """The answer is a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("last", torch.zeros(2, 4))

    def forward(self, x):
        self.last.copy_(x)
        return self.last


class ByList(Buffers):
    def forward(self, x):
        c: typing.List[torch.Tensor] = []
        c.append(self.k)
        c.append(self.v)
        c[0].copy_(x)
        c[1].copy_(x * 2)
        return self.k + self.v


class ByDictionary(Buffers):
    def forward(self, x):
        c: typing.Dict[str, torch.Tensor] = {}
        c["k"] = self.k
        c["v"] = self.v
        c["k"].copy_(x)
        c["v"].copy_(x * 2)
        return self.k + self.v


class FromDictionary(Buffers):
    def forward(self, x):
        c = {"k": self.k, "v": self.v}
        c["k"].copy_(x)
        c["v"].copy_(x * 2)
        return self.k + self.v


class ByCopyOfList(Buffers):
    def forward(self, x):
        c = [self.k, self.v]
        c = c.copy()
        c[0].copy_(x)
        c[1].copy_(x * 2)
        return self.k + self.v


class TypeAs(Buffers):
    def forward(self, x):
        k, v = self.k.type_as(x), self.v.type_as(x)
        k.copy_(x)
        v.copy_(x * 2)
        return k + v


class Dropout(Buffers):
    def forward(self, x):
        k, v = torch.dropout(self.k, 0.5, False), torch.atleast_2d(self.v)
        k.copy_(x)
        v.copy_(x * 2)
        return k + v


class Rebound(Buffers):
    def forward(self, x):
        y = torch.empty(0)
        y.set_(self.k)
        y.copy_(x)
        return y + self.v


class Foreach(Buffers):
    def forward(self, x):
        torch._foreach_add_([self.k], [x])
        return self.k + self.v


class Unlisted(Buffers):
    """PyTorch's operator for tests returns its argument and does not say so, and the tape does not know it."""

    def forward(self, x):
        y = torch.ops.aten._foobar(self.k, True, True, arg3=True)
        y.copy_(x)
        return y + self.v


class UnsafeChunk(Buffers):
    def forward(self, x):
        torch.unsafe_chunk(self.k, 1)[0].copy_(x)
        return self.k + self.v


class Renormed(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.full((3, 4), 9.0))
        self.same = nn.Parameter(torch.full((3, 4), 9.0))

    def forward(self, x):
        return nn.functional.embedding(torch.tensor([0, 2]), self.w, None, 1.0) + self.same[:2] + x


class Statistics(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("var", torch.zeros(4))
        self.register_buffer("shift", torch.zeros(4))

    def forward(self, x):
        mean, inv = torch.batch_norm_update_stats(x, self.mean, self.var, 1.0)
        return (x - mean) * inv + self.shift


class ForkedCount(nn.Module):
    n: int

    def __init__(self):
        super().__init__()
        self.n = 0

    @torch.jit.export
    def bump(self, x):
        self.n = self.n + 1
        return x

    def forward(self, x):
        return torch.jit.wait(torch.jit.fork(self.bump, x)) + self.n


@torch.jit.interface
class Cache(nn.Module):
    def put(self, x: torch.Tensor) -> torch.Tensor:
        pass

    def get(self, x: torch.Tensor) -> torch.Tensor:
        pass


class OneCache(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("kept", torch.zeros(2, 4))

    @torch.jit.export
    def put(self, x: torch.Tensor) -> torch.Tensor:
        self.kept.copy_(x)
        return x + 1

    @torch.jit.export
    def get(self, x: torch.Tensor) -> torch.Tensor:
        return self.kept + x


class Interface(Layer):
    cache: Cache

    def __init__(self):
        super().__init__()
        self.cache = torch.jit.script(OneCache())

    def forward(self, x):
        y = self.cache.put(x)
        z = self.l(y)
        return z + self.cache.get(z)


class Seeded(nn.Module):
    def forward(self, x):
        torch.manual_seed(int(x[0, 0]))
        y = x + 1
        return y + torch.rand(2, 4)


def double(x):
    return x * 2


class ForkedFunction(Layer):
    def forward(self, x):
        return self.l(x) + torch.jit.wait(torch.jit.fork(double, x))


def twice(x):
    return torch.jit.wait(torch.jit.fork(double, x)) + 1


class ForkedForks(Layer):
    def forward(self, x):
        return self.l(torch.jit.wait(torch.jit.fork(twice, x)))


class Futures(Layer):
    """Futures in a list."""

    def forward(self, x):
        futures: typing.List[torch.jit.Future[torch.Tensor]] = []
        for _ in range(3):
            futures.append(torch.jit.fork(double, x))
        futures.append(torch.jit.fork(double, x))
        y = x
        for future in futures:
            y = y + torch.jit.wait(future)
        return self.l(y)


class Dictionary(nn.Module):
    def forward(self, x):
        return {"low": x, "high": x + 1}


class Nested(nn.Module):
    def forward(self, x):
        return x, (x + 1, x + 2)


class Listed(nn.Module):
    def forward(self, x):
        return [x, x + 1]


class NegativeGroups(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("w", torch.ones(4, 4, 1, 1))

    def forward(self, x):
        return torch.conv2d(x, self.w, None, [1, 1], [0, 0], [1, 1], -5)


class LongText(nn.Module):
    """Loading must not make a text of any length; a request may."""

    def __init__(self):
        super().__init__()
        self.text = ""

    def forward(self, x):
        return x + len(self.text.ljust(1 << 29))


class OwnThings(Layer):
    """Writes, to what is the request's own: this model is cut."""

    def forward(self, x):
        parts: typing.List[torch.Tensor] = [self.l(x)]
        parts.append(torch.relu_(self.l(parts[0])))
        y = nn.functional.dropout(torch.cat(parts, 1), 0.5, False)
        y += 1
        named = {"y": y.type_as(x)}
        named["z"] = self.l(y[:, :4])
        named["y"].mul_(2)
        z = torch.cat([named["z"], y], 1)
        return self.l(torch.relu_(z)[:, :4])


def numbers(seed):
    return torch.arange(8.0).view(2, 4) + seed + 1


# Whose answers PyTorch and the tape both give, with as many layer groups: 1 where the model has a state.
MODELS = (NoGrad, Recorded, Autocast, LastAnswer, ByList, ByDictionary, FromDictionary, ByCopyOfList, TypeAs, Dropout,
          Rebound, Foreach, Unlisted, UnsafeChunk, Renormed, Statistics, ForkedCount, Interface, Seeded, ForkedFunction, ForkedForks, Futures, Dictionary,
          Nested, Listed, OwnThings)
OTHERS = (NegativeGroups, LongText)


def long_chain(x):
    for _ in range(6000):
        x = x.view(2, 4)
    return x.add_(1)


if names:
    MODELS = tuple(model for model in MODELS if model.__name__ in names)
torch.manual_seed(0)
with torch.no_grad():
    plain = {}
    for make in MODELS + OTHERS:
        torch.jit.script(make().eval()).save(f"{make.__name__}.pt")
    for make in MODELS:
        loaded = torch.jit.load(f"{make.__name__}.pt").eval()
        plain[make] = [raw(flat(loaded(numbers(seed)))) for seed in range(4)]
        del loaded
    torch.jit.trace(long_chain, numbers(0), check_trace=False).save("long.pt")


def look(make):
    name = make.__name__
    usual = backend.load(f"{name}.pt")
    record.value(f"{name}: described", [output for output, _, _ in usual.describe()[1]])
    found = usual(numbers(0))
    record.value(f"{name}: named", list(found))
    record.check(f"{name}: one after the other", [data(found)] + [data(usual(numbers(seed))) for seed in range(1, 4)] == plain[make])
    usual.unload()
    every = backend.load(f"{name}.pt", groups=1 << 20)
    record.value(f"{name}: groups", every.groups)
    both = in_turns(every.begin(numbers(0)), every.begin(numbers(1)))
    record.check(f"{name}: two at a time", [data(found) for found in both] == plain[make][:2])
    every.unload()


def peak_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def load_long():
    try:
        record.value("long: groups", backend.load("long.pt", groups=1 << 20).groups)
    except ServeError as error:
        record.value("long: groups", str(error))


backend = Backend(path)
for model in MODELS:
    try:
        look(model)
    except ServeError as error:
        record.value(f"{model.__name__}: error", str(error))
record.value("NegativeGroups: described", backend.load("NegativeGroups.pt").describe()[0])
before = peak_mib()
backend.load("LongText.pt")
record.value("LongText: MiB", peak_mib() - before)
threading.stack_size(512 << 10)
thread = threading.Thread(target=load_long)
thread.start()
thread.join()
record.save()
