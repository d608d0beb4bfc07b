"""Weights that function transforms wrap (vmap over stacked models, grad, vectorised jacobians, functionalize):
transforms.py OUT."""
import torch
import torch.nn.functional as F
from torch.func import functionalize, grad, vmap

from _record import begin, status

record, _ = begin()
LAYERS, PASSES = 12, 6


def network(weights, x):
    for weight in weights:
        x = F.relu(F.linear(x, weight)) / 8
    return x


def backward(weights, x):
    """The gradient's own operators read the weights, which no argument of network's does."""
    return grad(lambda x: network(weights, x).sum())(x)


def jacobian(weights, x):
    x = x[0].clone().requires_grad_()
    return torch.autograd.grad(network(weights, x), x, [torch.eye(4, 1024)], is_grads_batched=True)[0]


weights = [torch.randn(1024, 1024) for _ in range(LAYERS)]
stacked = [weight.view(4, 512, 512) for weight in weights]
CASES = {
    "stacked": lambda: vmap(network, (0, None))(stacked, torch.randn(2, 512)),
    "grad": lambda: backward(weights, torch.randn(2, 1024)),
    "samples": lambda: vmap(backward, (None, 0))(weights, torch.randn(2, 1024)),
    "jacobian": lambda: jacobian(weights, torch.randn(2, 1024)),
    "functionalize": lambda: functionalize(network)(weights, torch.randn(2, 1024)),
}
record.notes["window_hits"] = {}
for name, case in CASES.items():
    before = status()
    for i in range(PASSES):
        record.tensor(f"{name} {i}", case())
    if before:
        record.notes["window_hits"][name] = status()["window_hits"] - before["window_hits"]
record.save()
