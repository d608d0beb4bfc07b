"""Operators swapnet cannot know: one whose schema lies about a write, one that keeps pointers, one with a network in a
Python body, and an autograd Function with a hand-written backward."""
import torch
import torch.nn.functional as F
from torch import nn

from _models import mlp, rows
from _record import begin, digest

record, _ = begin()
kept = []
library = torch.library.Library("swapnet_test", "DEF")
library.define("bump(Tensor weight, float by) -> Tensor")  # no (a!): the schema lies
library.define("keep(Tensor weight) -> Tensor")
library.define("network(Tensor x, Tensor[] weights) -> Tensor")


def bump(weight, by):
    weight.numpy()[::2] += by
    return weight.sum()


def keep(weight):
    kept.append((weight.numpy(), weight.data_ptr(), digest(weight)))
    return weight[0] * 2


def network(x, weights):
    for weight in weights:
        x = torch.tanh(F.linear(x, weight))
    return x


for function in (bump, keep, network):
    library.impl(function.__name__, function, "CPU")
ops = torch.ops.swapnet_test


class ScaledLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight.t() * 0.5

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad @ weight * 0.5, grad.t() @ x * 0.5


model = mlp()
weights = [m.weight.detach() for m in model if isinstance(m, nn.Linear)]
with torch.no_grad():
    for i in range(4):
        record.tensor(f"output{i}", model(rows(i)))
        record.tensor(f"bump{i}", ops.bump(weights[i], 0.01))
        record.tensor(f"keep{i}", ops.keep(weights[i + 6]))
        record.tensor(f"network{i}", ops.network(rows(i), weights[12:]))
    for i in range(4, 8):
        record.tensor(f"output{i}", model(rows(i)))
for k, (view, address, want) in enumerate(kept):
    record.data(f"kept{k}", view)
    record.check(f"kept{k} unchanged", digest(torch.from_numpy(view)) == want)
    record.check(f"kept{k} same address", weights[k + 6].data_ptr() == address)

leaves = [w.clone().requires_grad_() for w in weights[:12]]
for step in range(2):
    x = rows(step)
    for leaf in leaves:
        x = ScaledLinear.apply(x, leaf)
    x.square().sum().backward()
for k, leaf in enumerate(leaves):
    record.tensor(f"grad{k}", leaf.grad)
record.module("model", model)
record.save()
