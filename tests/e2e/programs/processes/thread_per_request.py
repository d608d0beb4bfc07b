"""A thread for each request: what stays of a thread that has ended."""
import threading

import torch

from _models import mlp, rows
from _record import anonymous_bytes, begin

record, _ = begin()
torch.set_num_threads(1)
THREADS = 600
model, x = mlp(), rows(0)
answers = []


def answer():
    with torch.no_grad():
        answers[:] = [model[0](x)]


def requests(count):
    for _ in range(count):
        thread = threading.Thread(target=answer)
        thread.start()
        thread.join()


with torch.no_grad():
    record.tensor("output", model(x))
    record.tensor("again", model(x))
requests(200)
before = anonymous_bytes()
requests(THREADS)
record.notes["bytes_a_thread"] = (anonymous_bytes() - before) / THREADS
record.tensor("answer", answers[0])
record.save()
