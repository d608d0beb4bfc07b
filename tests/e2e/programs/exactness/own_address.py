"""Operators that read a weight at its own address, of bytes that nothing has read yet: own_address.py OUT PTH."""
import torch

from _record import begin

record, (path,) = begin()
torch.ones(1).cos()  # by one thread: where several are the first, MKL may choose another kernel for one (pytorch#188792)
state = torch.load(path)
with torch.no_grad():
    for name, tensor in state.items():
        record.value(name, float(tensor.cos().max()))
record.save()
