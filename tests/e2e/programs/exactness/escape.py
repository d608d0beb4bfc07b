"""Thread B takes addresses of weights in a tight loop while thread A infers; all are read again ten passes later.

An address of a pool buffer, handed out during A's window, would then hold another layer's bytes.
"""
import ctypes
import hashlib
import threading
import warnings

import torch
from torch import nn
from torch.utils import dlpack

from _models import mlp, rows
from _record import begin

record, _ = begin()
warnings.filterwarnings("ignore", message="TypedStorage is deprecated")
model = mlp()
weights = [m.weight.detach() for m in model if isinstance(m, nn.Linear)]
want = [hashlib.sha256(w.numpy()).digest() for w in weights]
started, stop = threading.Event(), threading.Event()
taken = {}  # (method, layer, address) -> something that reads the bytes; distinct addresses are all kept


def from_pointer(address, weight):
    return (ctypes.c_char * (weight.numel() * 4)).from_address(address)


def storage_slice(weight):
    storage = weight.untyped_storage() if hasattr(weight, "untyped_storage") else weight.storage()
    return torch.tensor([], dtype=weight.dtype).set_(storage, 0, (1024, 1024)).numpy()


METHODS = {
    "numpy": lambda w: w.numpy(),
    "data_ptr": lambda w: from_pointer(w.data_ptr(), w),
    "dlpack": lambda w: dlpack.from_dlpack(dlpack.to_dlpack(w)).numpy(),
    "array_interface": lambda w: w.view(512, 2048).numpy(),
    "storage": storage_slice,
    "storage_ptr": lambda w: from_pointer(w.storage().data_ptr(), w),
}


def take():
    started.set()
    k = 0
    while not stop.is_set():
        k = (k + 7) % len(weights)
        for method, function in METHODS.items():
            seen = function(weights[k])
            key = method, k, address_of(seen)
            if key not in taken:
                taken[key] = seen


def address_of(seen):
    return ctypes.addressof(seen) if isinstance(seen, ctypes.Array) else seen.ctypes.data


def infer(passes, name):
    with torch.no_grad():
        for i in range(passes):
            record.tensor(f"{name}{i}", model(rows(i)))


infer(3, "learn")
thief = threading.Thread(target=take)
thief.start()
started.wait()
infer(8, "watched")
for _ in range(10_000):  # a busy machine may let the thief wait
    if {(m, k) for m, k, _ in list(taken)} == {(m, k) for m in METHODS for k in range(len(weights))}:
        break
    with torch.no_grad():
        model(rows(0))
stop.set()
thief.join()
infer(10, "after")
wrong = [f"{method} of layer {k}" for (method, k, _), seen in taken.items()
         if hashlib.sha256(memoryview(seen).cast("B")).digest() != want[k]]
record.value("read other bytes", sorted(set(wrong)))
record.check("every method was tried on every layer",
             {(m, k) for m, k, _ in taken} == {(m, k) for m in METHODS for k in range(len(weights))})
record.module("model", model)
record.save()
