"""exits.py OUT HOW: ways to end a process while weights are swapped out and work is in flight."""
import atexit
import os
import signal
import sys
import threading
import time

import torch

from _models import mlp, rows
from _record import begin

record, args = begin()
how = args[0]
model = mlp()


def infer(name, passes):
    with torch.no_grad():
        for i in range(passes):
            record.tensor(f"{name}{i}", model(rows(i)))


def endless():
    with torch.no_grad():
        while True:
            model(rows(0))


def counted():
    with torch.no_grad():
        for i in range(10):
            late.append(model(rows(i)))


def in_thread(work, daemon):
    threading.Thread(target=work, daemon=daemon).start()
    time.sleep(0.05)


def at_exit():
    with torch.no_grad():
        model(rows(1))
    print("inference at exit done", flush=True)


infer("output", 3)
late = []
record.save()
if how == "return":
    pass
elif how == "os_exit":
    in_thread(endless, daemon=True)
    os._exit(7)
elif how == "sys_exit":
    sys.exit(5)
elif how == "sys_exit_in_thread":
    in_thread(lambda: sys.exit(9), daemon=False)
elif how == "exception":
    raise ValueError("on purpose")
elif how == "exception_in_thread":
    in_thread(lambda: [].pop(), daemon=False)
elif how == "daemon_thread":
    in_thread(endless, daemon=True)
elif how == "thread":
    in_thread(counted, daemon=False)
elif how == "atexit":
    atexit.register(at_exit)
elif how == "sigterm":
    in_thread(endless, daemon=True)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(30)
elif how == "sigint":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(30)
elif how == "abort":
    in_thread(endless, daemon=True)
    os.abort()
elif how == "exec":
    in_thread(endless, daemon=True)
    os.execv("/bin/sh", ["sh", "-c", "echo from sh; exit 11"])
else:
    raise AssertionError(how)
