"""fork_storm.py OUT FORKS: forks at random points of a running inference; parent and children must agree with plain.

Most children hash one weight, chosen by number, and leave; with fetches in flight on an old kernel, or a window left
open, one of them would read another layer's bytes. Every tenth runs an inference, with a pool and a queue of its own.
"""
import os

# With threads of its own, OpenBLAS waits at every fork for a multiplication in flight, plainly for ever.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import hashlib
import random
import threading
import time

import torch
from torch import nn

from _models import mlp, rows
from _record import begin

record, args = begin()
forks = int(args[0])
model = mlp(depth=20)
weights = [m.weight.detach() for m in model if isinstance(m, nn.Linear)]
want = [hashlib.sha256(w.numpy()).digest() for w in weights]
stop = threading.Event()
passes = []
torch.set_num_threads(1)  # a child has none of its parent's threads, and OpenMP's would be waited for
with torch.no_grad():
    reference = model(rows(0))


def inferences():
    torch.set_num_threads(1)
    with torch.no_grad():
        while not stop.is_set():
            passes.append(torch.equal(model(rows(0)), reference))


def child_agrees(i):
    if i % 10 == 9:
        with torch.no_grad():
            return torch.equal(model(rows(0)), reference)
    k = i % len(weights)
    return hashlib.sha256(weights[k].numpy()).digest() == want[k]


runner = threading.Thread(target=inferences)
runner.start()
chance = random.Random(1)
bad = []
for i in range(forks):
    time.sleep(chance.random() * 0.002)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if child_agrees(i) else 1)
    if os.waitpid(pid, 0)[1] != 0:
        bad.append(i)
stop.set()
runner.join()
record.value("children that read wrong bytes", bad)
record.check("every inference equal", all(passes))
record.check("inferences ran meanwhile", len(passes) > 3)
record.module("model", model)
record.save()
