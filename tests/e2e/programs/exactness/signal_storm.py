"""Inference in a storm of signals, none of which restarts what it interrupts: signal_storm.py OUT DIR. Each operator and each
load meets some; Python's own calls try again by themselves."""
import os
import signal
import threading

import torch
import torch.nn.functional as F

from _record import begin

record, (directory,) = begin()
torch.set_num_threads(1)
weights = [torch.randn(1024, 1024) / 32 for _ in range(16)]
seen = 0


def count(*_):
    global seen
    seen += 1


signal.signal(signal.SIGALRM, count)
signal.signal(signal.SIGUSR1, count)
signal.siginterrupt(signal.SIGALRM, True)
over = threading.Event()


def shoot():
    """At the process: the kernel chooses a thread that does not block the signal."""
    while not over.wait(0.001):
        os.kill(os.getpid(), signal.SIGUSR1)


shooter = threading.Thread(target=shoot)
shooter.start()
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
try:
    for turn in range(3):
        x = torch.ones(2, 1024)
        for w in weights:
            x = torch.relu(F.linear(x, w))
        record.tensor(f"out{turn}", x)
        weights[turn].add_(1)
        path = f"{directory}/{os.getpid()}-{turn}.pth"
        torch.save({"w": weights[turn]}, path)
        record.tensor(f"loaded{turn}", torch.load(path)["w"])
finally:
    signal.setitimer(signal.ITIMER_REAL, 0)
    over.set()
    shooter.join()
for i, w in enumerate(weights):
    record.tensor(f"w{i}", w)
record.notes["signals"] = seen
record.save()
