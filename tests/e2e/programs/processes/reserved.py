"""reserved.py OUT WHAT [WHEN [VALUE]]: a model of 96 MiB in a program that asks the kernel for something.

WHAT is lock (VALUE: mlockall's flags), refused (the same in a program that may not, and goes on), space or data (VALUE: RLIMIT_AS or RLIMIT_DATA, in bytes), forks (VALUE: how many
at once), abort (a core dump), gcore (VALUE: the path of the dump), or nothing. WHEN is before (PyTorch is there), begun (one
tensor is), built (the model is), or run (it has run).
"""
import ctypes
import os
import resource
import subprocess
import sys
import threading

refused = []
what, when, value = (sys.argv[2:] + ["", "", ""])[:3]


def kib(*fields):
    with open("/proc/self/status", encoding="ascii") as lines:
        found = dict(line.split(":") for line in lines)
    return sum(int(found[field].split()[0]) for field in fields)


def resident():
    return kib("RssAnon", "RssShmem", "RssFile") << 10


def lock(flags):
    if ctypes.CDLL(None, use_errno=True).mlockall(flags):
        raise OSError(ctypes.get_errno(), "mlockall")


def lock_in_vain(flags):
    """Without CAP_IPC_LOCK (14), and with less to be locked than it has."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    if libc.capget(header, sets):
        raise OSError(ctypes.get_errno(), "capget")
    sets[0] &= ~(1 << 14)
    if libc.capset(header, sets):
        raise OSError(ctypes.get_errno(), "capset")
    limit(resource.RLIMIT_MEMLOCK, 8 << 20)
    return libc.mlockall(flags), ctypes.get_errno()


def limit(which, size):
    resource.setrlimit(which, (size, resource.getrlimit(which)[1]))


def now(moment):
    if when != moment:
        return
    if what == "lock":
        lock(int(value))
    elif what == "refused":
        refused.append(lock_in_vain(int(value)))
    elif what == "space":
        limit(resource.RLIMIT_AS, int(value))
    elif what == "data":
        limit(resource.RLIMIT_DATA, int(value))


os.environ["OPENBLAS_NUM_THREADS"] = "1"  # a child has none of its parent's threads
now("before")

import torch

from _models import mlp, rows
from _record import begin, digest

record, _ = begin()
torch.set_num_threads(1)
torch.ones(200, 200)
now("begun")
model = mlp()
now("built")
with torch.no_grad():
    for i in range(3):
        record.tensor(f"before {i}", model(rows(i)))
    now("run")
    for i in range(3):
        record.tensor(f"after {i}", model(rows(i)))


def child(i):
    """Says what one layer holds, and waits until all are there."""
    os.write(answers[1], f"{i} {digest(model[2 * (i % 24)].weight)}\n".encode())
    os.read(gate[0], 1)
    os._exit(0)


if what == "forks":
    answers, gate = os.pipe(), os.pipe()
    pids = []
    for i in range(int(value)):
        pid = os.fork()
        if pid == 0:
            os.close(gate[1])
            child(i)
        pids.append(pid)
    os.close(answers[1])
    with os.fdopen(answers[0]) as lines:
        said = sorted(next(lines).strip() for _ in pids)
    os.close(gate[1])
    record.value("children", said)
    record.value("ends", [os.waitpid(pid, 0)[1] for pid in pids])
if what in ("space", "data", "nothing"):
    own = bytearray(100 << 20)  # the program's own memory
    thread = threading.Thread(target=lambda: own.__setitem__(0, 1))
    thread.start()
    thread.join()
    record.check("own memory", own[0] == 1)
if what == "gcore":
    before = resident()
    env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    # As gcore does, but that symbols of the libraries, which take longest to read, are in no core.
    words = [f"attach {os.getpid()}", f"gcore {value}.{os.getpid()}", "detach", "quit"]
    subprocess.run(["gdb", "--nx", "--batch", "--readnever", "-iex", "set debuginfod enabled off", "-iex", "set auto-solib-add off",
                    *(part for word in words for part in ("-ex", word))], env=env, capture_output=True, stdin=subprocess.DEVNULL)
    record.check("dumped", os.path.exists(f"{value}.{os.getpid()}"))
    record.notes["grown"] = resident() - before
record.value("refused", refused)
record.module("model", model)
record.notes["peak"] = kib("VmHWM") << 10
record.notes["data"] = kib("VmData") << 10
record.notes["space"] = kib("VmPeak") << 10
record.save()
if what == "abort":
    os.abort()
