"""The first load of a checkpoint, with a timer that goes off meanwhile: interrupted_load.py OUT PTH DIR. Its handler sees
whether the store in DIR is being made just then."""
import os
import pathlib
import signal
import sys

import torch

from _models import mlp, rows
from _record import begin

record, (path, directory) = begin()
handled = during = 0


def handler(number, frame):
    global handled, during
    handled += 1
    during += any(name.endswith(".tmp") for name in os.listdir(directory))


model = mlp()
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)
state = torch.load(path)
signal.setitimer(signal.ITIMER_REAL, 0)
model.load_state_dict(state)
del state
with torch.no_grad():
    for i in range(2):
        record.tensor(f"output{i}", model(rows(i)))
record.module("model", model)
record.notes["handled"], record.notes["during"] = handled, during
record.save()
sys.stdout.flush()
