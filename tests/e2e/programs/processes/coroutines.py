"""Coroutines while operators run: coroutines.py OUT stores LIBRARY STACK|greenlets. `stores`: those of the C library, on stacks of
STACK bytes and with all signals blocked, store into one model's weights while another thread infers with a second model.
`greenlets`: two models infer by turns in one thread, which changes between them after and within each layer."""
import ctypes
import functools
import threading

import torch
from torch import nn

from _models import mlp, rows
from _record import begin

record, (what, *rest) = begin()
models = [mlp(depth=12), mlp(depth=12)]


def infer(model, name, passes):
    with torch.no_grad():
        for i in range(passes):
            record.tensor(f"{name}{i}", model(rows(i)))


def stores(library, stack):
    """The coroutines belong to one thread, and let another one compute."""
    library = ctypes.CDLL(library)
    store = library.coroutines_store
    weights = [m.weight.detach() for m in models[0] if isinstance(m, nn.Linear)]
    infer(models[1], "before", 1)
    reader = threading.Thread(target=infer, args=(models[1], "beside", 6))
    reader.start()
    at = (ctypes.c_void_p * len(weights))(*(w.data_ptr() for w in weights))
    for _ in range(3):
        sizes = ctypes.c_size_t(weights[0].numel()), len(weights), ctypes.c_size_t(int(stack))
        assert store(at, *sizes) == 0
    reader.join()
    record.notes["blocked"] = library.coroutines_blocked()
    infer(models[0], "stored", 2)


def greenlets():
    import greenlet

    running = []

    def change():
        others = [g for g in running if g is not greenlet.getcurrent() and not g.dead]
        if others:
            others[0].switch()

    def run(number):
        for i in range(4):
            x = rows(10 * number + i)
            with torch.no_grad():
                for layer in models[number]:
                    x = layer(x)
                    change()
            record.tensor(f"model{number} {i}", x)

    class Product(torch.autograd.Function):
        """Changes in the middle of what PyTorch takes for one step."""

        @staticmethod
        def forward(ctx, x, weight):
            change()
            y = x @ weight.t()
            change()
            return y

    def within(number):
        x = rows(20 + number)
        for layer in models[number]:
            x = Product.apply(x, layer.weight) if isinstance(layer, nn.Linear) else layer(x)
        record.tensor(f"within{number}", x)

    for work in (run, within):
        running[:] = [greenlet.greenlet(functools.partial(work, number)) for number in range(len(models))]
        for coroutine in running:
            while not coroutine.dead:
                coroutine.switch()


{"stores": stores, "greenlets": greenlets}[what](*rest)
for number, model in enumerate(models):
    record.module(f"model{number}", model)
record.save()
