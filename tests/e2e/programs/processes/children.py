"""children.py OUT LIBRARY: starts others while weights are swapped out, by subprocess, posix_spawn, a shell, and vfork, whose
child limits its address space to less than the program has (LIBRARY is child_of_vfork.so)."""
import ctypes
import os
import subprocess
import sys

import torch

from _models import mlp, rows
from _record import begin

record, args = begin()
model = mlp()
with torch.no_grad():
    for i in range(3):
        record.tensor(f"before{i}", model(rows(i)))


def run(name, *command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, **options)
    record.value(name, [done.returncode, done.stdout, done.stderr])


run("shell", "sh", "-c", "echo out; echo err >&2; exit 3")
run("python", sys.executable, "-c", "print(sum(range(10)))")
run("many", "sh", "-c", "for i in 1 2 3 4 5; do (cat /dev/null; echo $i) & wait; done")
run("close_fds off", "true", close_fds=False)
run("preexec", "echo", "x", preexec_fn=lambda: None)
pid = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 4"], os.environ)
record.value("posix_spawn", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
record.value("system", os.waitstatus_to_exitcode(os.system("exit 6")))
record.value("limited child", ctypes.CDLL(args[0]).limit_space_in_child(ctypes.c_ulong(64 << 20)))
with torch.no_grad():
    for i in range(3):
        record.tensor(f"after{i}", model(rows(i)))
record.module("model", model)
record.save()
