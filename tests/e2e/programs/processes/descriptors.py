"""All descriptors are taken while a model is made and computes, and free again afterwards: descriptors.py OUT early|late. Early:
after the first tensor; late: when weights have left for the disk already."""
import os
import resource

import torch

from _models import mlp, rows
from _record import begin

record, (when,) = begin()
first = torch.ones(1024, 1024)
if when == "late":
    model = mlp(384)
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
taken = []
while True:
    try:
        taken.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        break
if when == "early":
    model = mlp(384)
with torch.inference_mode():
    for i in range(3):
        record.tensor(f"without{i}", model(rows(i, width=384)))
    for fd in taken:
        os.close(fd)
    more = mlp(384)
    for i in range(3):
        record.tensor(f"with{i}", more(model(rows(i, width=384))))
record.notes["taken"] = len(taken)
record.tensor("first", first)
record.save()
