"""Tensors that are overwritten from end to end while they are on the disk: overwritten.py OUT SCENARIO."""
import os
import threading

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from _record import begin

record, (scenario,) = begin()
torch.set_num_threads(1)


def pressure():
    """What has not been used lately leaves for these."""
    return [torch.ones(1024, 1024) for _ in range(12)]


def bytes_of(tensor):
    return (tensor.rename(None) if hasattr(tensor, "rename") else tensor).numpy().tobytes()


def refused():
    """What PyTorch refuses to write has the bytes that it had."""
    def named():
        to.copy_(torch.randn(1024, 1024, names=("B", "A")))

    cases = {"normal": (lambda: to.normal_(0, -1), None),
             "uniform": (lambda: to.uniform_(1, 0), None),
             "type": (lambda: to.copy_(torch.zeros(1024, 1024).to_sparse_csr()), None),
             "sizes": (lambda: to.copy_(torch.ones(1000, 1024)), None)}
    if hasattr(torch.Tensor, "rename"):  # later versions have no names
        cases["names"] = named, ("A", "B")
    for name, (write, names) in cases.items():
        to = torch.randn(1024, 1024, **({"names": names} if names else {}))
        record.data(f"{name} before", bytes_of(to))
        junk = pressure()
        try:
            write()
            refusals = "none"
        except RuntimeError:
            refusals = "one"
        record.value(f"{name} refusals", refusals)
        record.data(f"{name} after", bytes_of(to))
        del junk


def shared():
    """A tensor that lies at another's address until one of them is written (PyTorch 2.3) leaves the other as it is."""
    writes = {"copied": lambda tensor: tensor.copy_(source), "zeroed": lambda tensor: tensor.zero_(),
              "normal": lambda tensor: tensor.normal_(), "scaled": lambda tensor: tensor.mul_(2)}
    source = torch.randn(1024, 1024)
    for name, write in writes.items():
        for order in ("clone", "original"):
            original = torch.randn(1024, 1024)
            clone = torch._lazy_clone(original)
            written, other = (clone, original) if order == "clone" else (original, clone)
            junk = pressure()
            write(written)
            for tensor in junk:
                tensor.add_(0)
            record.data(f"{name} {order}", bytes_of(written))
            record.data(f"{name} {order} other", bytes_of(other))


def rerouted():
    """A dispatch mode comes between copy_ and its kernel: it gives the kernel another source, or the target other memory."""
    class Scales(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            if function is torch.ops.aten.copy_.default:
                args = args[0], args[1] * 2
            return function(*args, **(kwargs or {}))

    class Moves(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            if function is torch.ops.aten.copy_.default:
                args[0].set_(torch.empty(1024, 1024))
            return function(*args, **(kwargs or {}))

    path = record.path + ".pt"
    torch.save([torch.randn(1024, 1024) for _ in range(10)], path)
    for mode in Scales, Moves:
        sources = torch.load(path)
        targets = [torch.zeros(1024, 1024) for _ in sources]
        others = [target.detach() for target in targets]
        for other in others:
            other.add_(1)
        del other
        junk = pressure()
        for target, source in zip(targets, sources):
            with mode():
                target.copy_(source)
        del junk
        for name, tensors in {"targets": targets, "others": others}.items():
            for i, tensor in enumerate(tensors):
                record.data(f"{mode.__name__} {name} {i}", bytes_of(tensor))
    os.unlink(path)


def looked_at(write):
    """Another thread's reader sees old or new numbers, never others."""
    weight = torch.full((1024, 2048), 1.0)
    view, seen, stop = weight.numpy(), set(), threading.Event()

    def reader():
        while not stop.is_set():
            seen.update(float(x) for x in (view[0, 0], view[256, 0], view[512, 0], view[900, 5], view[1023, 2047]))

    junk = pressure()
    thread = threading.Thread(target=reader)
    thread.start()
    for n in range(12):
        write(weight, 1.0 + n % 2)
        for tensor in junk:
            tensor.add_(0)
    stop.set()
    thread.join()
    record.check("only numbers that were stored", seen <= {1.0, 2.0})


both = [torch.full((1024, 2048), 1.0), torch.full((1024, 2048), 2.0)]
{"refused": refused, "shared": shared, "rerouted": rerouted,
 "copied": lambda: looked_at(lambda weight, number: weight.copy_(both[int(number) - 1])),
 "filled": lambda: looked_at(lambda weight, number: weight.fill_(number))}[scenario]()
record.save()
