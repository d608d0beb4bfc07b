"""A program that closes every descriptor it did not open, as daemons do, and then opens files of its own under the numbers:
    closes.py here      in the process that has computed before
    closes.py daemon    in a child of it, the parent waits
    closes.py early     before the first tensor has been swapped out
    closes.py loaded    with weights from a checkpoint, some of which were never used before, and a child forked after
    closes.py raw       likewise, by system calls that go past the C library
"""
import ctypes
import hashlib
import os
import sys
import tempfile
import time

import torch

from _models import mlp, rows
from _record import begin, digest

CLOSE = {"x86_64": 3, "aarch64": 57}[os.uname().machine]  # numbers of the system call

record, (how,) = begin()


def compute(model, name, passes):
    with torch.no_grad():
        for i in range(passes):
            record.tensor(f"{name}{i}", model(rows(i)))


def loaded(directory):
    path = os.path.join(directory.name, "model.pth")
    torch.save(mlp(depth=12).state_dict(), path)
    models = mlp(depth=12), mlp(depth=12)
    for each in models:
        each.load_state_dict(torch.load(path))
    return models


def errno_of_close(fd):
    try:
        os.close(fd)
    except OSError as error:
        return error.errno
    return 0


directory = tempfile.TemporaryDirectory(dir=os.path.dirname(record.path))
if how in ("loaded", "raw"):
    model, fresh = loaded(directory)
    compute(model, "before", 8)
elif how == "early":
    model = torch.nn.Linear(4, 4)
else:
    model = mlp()
    compute(model, "before", 3)

if how == "daemon":
    child = os.fork()
    if child:
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    os.setsid()
    torch.set_num_threads(1)  # libgomp's threads do not survive a fork
if how == "raw":
    time.sleep(1)  # what is under way when a number goes to another file cannot be told from what is meant for that
    for fd in range(3, 256):
        ctypes.CDLL(None).syscall(CLOSE, fd)
elif how == "here":
    ctypes.CDLL(None).closefrom(3)
elif how == "daemon":
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd > 2:
            errno_of_close(fd)  # the directory itself is gone by now
else:
    os.closerange(3, 65536)

mine = [open(os.path.join(directory.name, str(i)), "w+b") for i in range(16)]
for i, file in enumerate(mine):
    file.write(bytes([i]) * (1 << 20))
    file.flush()
    file.truncate(64 << 20)  # so that there is something wherever we may look

if how == "early":
    model = mlp()
if how in ("loaded", "raw"):
    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:
        torch.set_num_threads(1)
        with torch.no_grad():
            os.write(write_end, digest(model(rows(0))).encode())
        os._exit(0)
    os.close(write_end)
    record.value("child", [os.read(read_end, 64).decode(), os.waitpid(child, 0)[1]])
    compute(fresh, "fresh", 2)
compute(model, "after", 3)
second = mlp()
compute(second, "second", 2)
with torch.no_grad():
    for parameter in model.parameters():
        parameter.add_(0.5)
compute(model, "written", 2)
compute(second, "again", 2)

spare = os.dup(1)
record.value("errors", [errno_of_close(fd) for fd in (spare, spare, -1, 1 << 20)])
for i, file in enumerate(mine):
    file.seek(0)
    content = file.read()
    record.value(f"file{i}", [len(content), hashlib.sha256(content).hexdigest(), file.fileno() >= 3])
record.module("model", model)
record.module("second", second)
record.save()
