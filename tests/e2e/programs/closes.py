"""A program that closes every descriptor it did not open, as daemons do, and then opens files of its own under the numbers:
    closes.py here      in the process that has computed before
    closes.py daemon    in a child of it, the parent waits
    closes.py early     before the first tensor has been swapped out
"""
import hashlib
import os
import sys
import tempfile

import torch

from _models import mlp, rows
from _record import begin

record, (how,) = begin()


def compute(model, name, passes):
    with torch.no_grad():
        for i in range(passes):
            record.tensor(f"{name}{i}", model(rows(i)))


model = torch.nn.Linear(4, 4) if how == "early" else mlp()
if how != "early":
    compute(model, "before", 3)

if how == "daemon":
    child = os.fork()
    if child:
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    os.setsid()
    torch.set_num_threads(1)  # libgomp's threads do not survive a fork
os.closerange(3, 256)

directory = tempfile.TemporaryDirectory(dir=os.environ.get("SWAPNET_TEST_DIR"))
mine = [open(os.path.join(directory.name, str(i)), "w+b") for i in range(16)]
for i, file in enumerate(mine):
    file.write(bytes([i]) * (1 << 20))
    file.flush()

if how == "early":
    model = mlp()
compute(model, "after", 3)
second = mlp()
compute(second, "second", 2)
with torch.no_grad():
    for parameter in model.parameters():
        parameter.add_(0.5)
compute(model, "written", 2)
compute(second, "again", 2)

for i, file in enumerate(mine):
    file.seek(0)
    content = file.read()
    record.value(f"file{i}", [len(content), hashlib.sha256(content).hexdigest(), file.fileno() >= 3])
record.module("model", model)
record.module("second", second)
record.save()
