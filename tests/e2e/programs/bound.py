"""Streams weights, and says where each thread may run, before and after all have been bound elsewhere: bound.py OUT CPU."""
import os
import pathlib

import torch

from _record import begin

record, (cpu,) = begin()


def processors():
    """By what threads are called: swapnet's are, and the program's are all python3."""
    names = {int(task.name): (task / "comm").read_text().strip() for task in pathlib.Path("/proc/self/task").iterdir()}
    return {name: sorted(os.sched_getaffinity(tid)) for tid, name in names.items()}


model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(12)))
x = torch.ones(4, 1024)
with torch.no_grad():
    for number in range(3):
        record.tensor(f"output {number}", model(x))
    record.notes["main"] = sorted(os.sched_getaffinity(0))
    record.notes["threads"] = processors()
    for task in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(task), {int(cpu)})
    for number in range(3, 6):
        record.tensor(f"output {number}", model(x))
    record.notes["moved"] = processors()
record.save()
