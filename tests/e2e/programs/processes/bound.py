"""Says where each thread may run, before and after all have been bound elsewhere, as `taskset -a` does: bound.py OUT CPU WHEN,
once weights are streamed (late), or before there are any (early)."""
import contextlib
import os
import pathlib

import torch

from _record import begin

record, (cpu, when) = begin()


def each(what):
    """what(thread), for all but those that end meanwhile."""
    found = []
    for task in pathlib.Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found.append(what(task))
    return found


def where(task):
    """What the thread is called, as swapnet's are, and where it may run."""
    return (task / "comm").read_text().strip(), sorted(os.sched_getaffinity(int(task.name)))


def move():
    each(lambda task: os.sched_setaffinity(int(task.name), {int(cpu)}))


record.notes["main"] = sorted(os.sched_getaffinity(0))
torch.ones(1)  # swapnet is there now
if when == "early":
    move()
model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(12)))
x = torch.ones(4, 1024)
with torch.no_grad():
    for number in range(3):
        record.tensor(f"output {number}", model(x))
    record.notes["threads"] = each(where)
    if when == "late":
        move()
    for number in range(3, 6):
        record.tensor(f"output {number}", model(x))
    record.notes["moved"] = each(where)
record.save()
