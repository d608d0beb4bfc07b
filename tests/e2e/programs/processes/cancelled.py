"""cancelled.py OUT LIBRARY: threads that compute are cancelled (support/cancelled.cpp), and the model computes on."""
import ctypes

import torch

from _record import begin

record, args = begin()
torch.set_num_threads(1)
library = ctypes.CDLL(args[0])
library.sum_of.restype = ctypes.c_double
record.value("cancelled", library.cancel_threads(6))
record.value("sums", [library.sum_of(i) for i in range(24)])
record.save()
