"""Models of TorchScript that touch files, each in another place of its code, and what the serve backend says to them.
argv: the serve backend."""
import os

import torch
from torch import nn

from _outputs import data, raw
from _record import begin
from serve_backend import Backend, ServeError

record, (path,) = begin()


class Reads(nn.Module):
    def forward(self, x):
        return torch.from_file("secret.txt", False, 6, dtype=torch.uint8)


class Writes(nn.Module):
    """In a branch that no request takes."""

    def forward(self, x):
        if x.dim() == 7:
            torch.save(x, "made")
        return x * 2


class Saver(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.save(x, "made")
        return x


@torch.jit.interface
class Step(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pass


class ByInterface(nn.Module):
    """A call that cannot be inlined."""

    step: Step

    def __init__(self):
        super().__init__()
        self.step = torch.jit.script(Saver())

    def forward(self, x):
        return self.step.forward(x)


def forked(x):
    torch.save(x, "made")
    return x


class Forks(nn.Module):
    def forward(self, x):
        return torch.jit.wait(torch.jit.fork(forked, x))


class WhenLoaded(nn.Module):
    """Loading runs it."""

    def __init__(self):
        super().__init__()
        self.a = 1

    def forward(self, x):
        return x * self.a

    @torch.jit.export
    def __getstate__(self):
        return self.a, self.training

    @torch.jit.export
    def __setstate__(self, state):
        # type: (Tuple[int, bool]) -> None
        self.a = state[0]
        self.training = state[1]
        torch.save(torch.zeros(1), "made")


class Foreign(nn.Module):
    """An operator of a namespace that is not PyTorch's."""

    def forward(self, x):
        return torch.ops.swapnet_test.twice(x)


class Harmless(nn.Module):
    """Methods and attributes of such names are not the operators."""

    def __init__(self):
        super().__init__()
        self.from_file = 2

    def forward(self, x):
        return self.save(x) * self.from_file

    @torch.jit.export
    def save(self, x):
        return x + 1


with open("secret.txt", "w") as f:
    f.write("secret")
library = torch.library.Library("swapnet_test", "DEF")
library.define("twice(Tensor x) -> Tensor")
library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
models = (Reads, Writes, ByInterface, Forks, WhenLoaded, Foreign, Harmless)
for make in models:  # before the backend takes operators from this process
    torch.jit.script(make().eval())._c.save(f"{make.__name__}.pt")
backend = Backend(path)
for make in models:
    if os.path.exists("made"):
        os.remove("made")
    try:
        found = data(backend.load(f"{make.__name__}.pt")(torch.ones(2))) == raw([torch.full((2,), 4.0)])
    except ServeError as error:
        found = str(error)
    record.value(make.__name__, [found, os.path.exists("made")])
record.save()
