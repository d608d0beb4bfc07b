"""Forked children that read, use and write weights the parent has swapped out; the parent goes on meanwhile."""
import multiprocessing
import os
import sys

import torch

from _models import mlp, rows
from _record import begin, digest

record, _ = begin()
model = mlp()


def in_child(work):
    """What `work` returns (one line of text) in a forked child."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            torch.set_num_threads(1)  # libgomp's threads do not survive a fork
            os.write(write_end, work().encode())
            status = 0
        finally:
            os._exit(status)
    os.close(write_end)
    with torch.no_grad():
        model(rows(9))  # the parent streams while the child reads
    with os.fdopen(read_end) as answers:
        text = answers.read()
    record.check(f"child {len(record.values)} ended well", os.waitpid(child, 0)[1] == 0)
    return text


def read_all():
    return " ".join(digest(p) for p in model.parameters())


def infer():
    with torch.no_grad():
        return " ".join(digest(model(rows(i))) for i in range(3))


def write():
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.001)
    return read_all() + infer()


def grandchild():
    return in_child(read_all)


def queue_worker(queue, names):
    torch.set_num_threads(1)
    state = model.state_dict()
    queue.put([digest(state[name]) for name in names])


with torch.no_grad():
    for i in range(3):
        record.tensor(f"output{i}", model(rows(i)))
for work in (read_all, infer, write, grandchild):
    record.value(work.__name__, in_child(work))
context = multiprocessing.get_context("fork")
queue = context.Queue()
names = list(model.state_dict())
workers = [context.Process(target=queue_worker, args=(queue, names[k::2])) for k in range(2)]
for worker in workers:
    worker.start()
record.value("multiprocessing", sorted(sum((queue.get(timeout=60) for _ in workers), [])))
for worker in workers:
    worker.join()
record.value("exit codes", [worker.exitcode for worker in workers])
with torch.no_grad():
    for i in range(3, 6):
        record.tensor(f"output{i}", model(rows(i)))
record.module("model", model)
record.save()
sys.exit(0)
