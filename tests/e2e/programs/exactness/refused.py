"""Operators that fail, on tensors that are not in memory: each finds its tensor as it was. What they were going to write
all of must not have been thrown away for them."""
import torch

from _record import begin

record, _ = begin()
SIZE = 1 << 18
TYPES = [name for name in ("half", "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn_x2", "bits8", "bits16", "uint16")
         if hasattr(torch, name)]


def bytes_of(seed):
    return torch.randint(0, 256, (4 * SIZE,), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def spilled(seed, dtype=torch.float32):
    """A tensor that other tensors have since pushed out of memory."""
    tensor = bytes_of(seed).view(dtype)
    filler = [torch.ones(SIZE) for _ in range(12)]
    del filler
    return tensor


def attempt(name, tensor, change):
    try:
        change()
        record.value(f"{name} raises", "")
    except Exception as error:
        record.value(f"{name} raises", type(error).__name__)
    record.tensor(f"{name} after", tensor.detach().view(torch.uint8) if tensor.dtype != torch.uint8 else tensor)


# Enough of them that the budget is full and the operators are seen.
ballast = [bytes_of(seed) for seed in range(12)]
source = torch.ones(SIZE, requires_grad=True)

base = spilled(20)
with torch.no_grad():
    view = base.view(512, 512)
attempt("view made without gradients", base, lambda: view.copy_(source.view(512, 512)))
base = spilled(21)
chunk = base.chunk(1)[0]
attempt("one of several views", base, lambda: chunk.copy_(source))
base = spilled(22).requires_grad_()
attempt("leaf", base, lambda: base.copy_(source))

for k, name in enumerate(TYPES):
    dtype = getattr(torch, name)
    for way, change in (("normal_", lambda t: t.normal_()), ("uniform_", lambda t: t.uniform_()),
                        ("zero_", lambda t: t.zero_()),
                        ("copy_", lambda t: t.copy_(torch.ones(t.shape)))):
        torch.manual_seed(k)
        tensor = spilled(30 + k, dtype)
        attempt(f"{name} {way}", tensor, lambda: change(tensor))
for k, tensor in enumerate(ballast):
    record.tensor(f"ballast{k}", tensor)
    record.tensor(f"sum{k}", tensor.sum())  # an operator that is not refused
record.save()
