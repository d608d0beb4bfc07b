"""fork_in_handler.py OUT LIBRARY: a signal handler of the program forks while the thread is anywhere in swapnet (support/fork_in_handler.c,
which is preloaded), and the model computes on."""
import ctypes

import torch

from _models import mlp, rows
from _record import begin

record, args = begin()
torch.set_num_threads(1)
library = ctypes.CDLL(args[0])
model = mlp()
with torch.no_grad():
    for i in range(8):
        record.tensor(f"output{i}", model(rows(i)))
        if i == 2:
            library.fork_in_mappings(12)
record.notes["forks"], record.notes["failed"] = library.forks_made(), library.forks_failed()
record.save()
