"""Memory of CPU tensors that the program registers with the driver itself, as PyTorch's checkpoint stager with pinned memory
and some servers do, while a model that does not fit computes beside it. The stand-in ends the program where the device
finds other pages than those that were registered."""
import ctypes
import os
import sys
import threading
import time

# The stand-in's runtime has to be there before the first tensor; as Python loads it, for those that are linked with it.
runtime = os.path.join(sys.argv[2], "libcudart.so.12")
if sys.argv[3] == "two":  # before it another one, which is everybody's, and of another version
    older = os.path.join(os.path.dirname(sys.argv[1]), "libcudart.so.11")
    with open(runtime, "rb") as file, open(older, "wb") as copy:
        copy.write(file.read().replace(b"libcudart.so.12\0", b"libcudart.so.11\0"))
    ctypes.CDLL(older, ctypes.RTLD_GLOBAL)
ctypes.CDLL(runtime)

import torch
from torch import nn

import _models
import _record
from _standin import Standin

record, (directory, _) = _record.begin()
standin = Standin(directory, scope=ctypes.RTLD_LOCAL)
device = standin.device
WIDTH, DEPTH = 512, 24
torch.cuda.cudart = standin.cudart

try:
    from torch.cuda._pin_memory_utils import pin_memory, unpin_memory  # the stager's
except ImportError:
    def pin_memory(pointer, size):
        assert torch.cuda.cudart().cudaHostRegister(pointer, size, 1) == 0

    def unpin_memory(pointer):
        assert torch.cuda.cudart().cudaHostUnregister(pointer) == 0


def pin(t):
    pin_memory(t.data_ptr(), t.numel() * t.element_size())


def used(model, x):
    """Written by the processor and by the device, and read by both, between passes that need the memory."""
    weights = [model[2 * i].weight for i in (0, 1, 2, DEPTH - 1)]  # some have left, and some have not
    staged = torch.empty(WIDTH, WIDTH)
    there = [torch.randn(WIDTH, WIDTH).to(device) for _ in range(2)]
    for t in [*weights, staged]:
        pin(t)
    for i in range(3):
        record.tensor(f"passed {i}", model(x))
        weights[0].mul_(0.5)
        weights[1].detach().numpy()[i] = 0  # announced to nobody
        staged.copy_(there[i % 2], non_blocking=True)  # as the stager does
        standin.wait()
        weights[2].copy_(there[1])
        for j, t in enumerate([*weights, staged]):
            standin.read(t)
            record.tensor(f"device {i} {j}", t.to(device).cpu())
    record.value("child", _record.in_child(lambda: bool(torch.isfinite(model(x)).all())))
    for t in [*weights, staged]:
        standin.read(t)
        unpin_memory(t.data_ptr())
    record.value("not registered", torch.cuda.cudart().cudaHostUnregister(staged.data_ptr()))


def shared():
    """A device that shares a weight's bytes has a tensor of its own in the program's eyes, also where the program has
    the processor's registered, before or afterwards."""
    for first in True, False:
        weight = nn.Parameter(torch.randn(WIDTH, WIDTH))
        if first:
            pin(weight)
        there = weight.to(device)
        if not first:
            pin(weight)
        address = weight.data_ptr()
        weight.add_(1)
        record.check(f"stays {first}", weight.data_ptr() == address)
        standin.read(weight)
        record.tensor(f"host {first}", weight)
        record.tensor(f"there {first}", there.cpu())
        unpin_memory(address)


def meanwhile():
    """Another thread moves the weight to the device while it is being registered."""
    weight, there, begun = nn.Parameter(torch.randn(WIDTH, WIDTH)), [], threading.Event()

    def move():
        with torch.no_grad():
            standin.register_slowly(0.3)
            begun.set()
            there.append(weight.to(device))

    thread = threading.Thread(target=move)
    thread.start()
    begun.wait()
    time.sleep(0.1)
    pin(weight)
    thread.join()
    address = weight.data_ptr()
    weight.add_(1)
    standin.read(weight)
    record.tensor("host meanwhile", weight)
    record.tensor("there meanwhile", there[0].cpu())
    unpin_memory(address)


with torch.no_grad():
    model, x = _models.mlp(WIDTH, DEPTH), torch.randn(2, WIDTH)
    for i in range(3):
        record.tensor(f"before {i}", model(x))
    used(model, x)
    shared()
    meanwhile()
    for i in range(4):
        record.tensor(f"after {i}", model(x))
    record.module("model", model)
    record.check("none left", standin.live()["registered"] == 0)
record.save()
