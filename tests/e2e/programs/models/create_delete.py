"""Models made, used and deleted in a loop. Notes how much anonymous memory and spill space stays afterwards."""
import ctypes
import gc
import os
import time

import torch

from _models import mlp, rows
from _record import anonymous_bytes, begin

record, _ = begin()


SPILL_KEPT = 16 << 20  # as much as test_programs.py lets stay


def spill_bytes():
    """Disk blocks of this process's unlinked regular files: what spilled weights take."""
    total = 0
    for fd in os.listdir("/proc/self/fd"):
        try:
            path, status = os.readlink(f"/proc/self/fd/{fd}"), os.stat(f"/proc/self/fd/{fd}")
        except OSError:
            continue
        if path.endswith("(deleted)") and not path.startswith("/memfd:"):
            total += status.st_blocks * 512
    return total


def settled_spill_bytes():
    """Space is given back by a thread of the library's own, about a second later, and more on a busy disk. The
    test lets a little stay."""
    for _ in range(200):
        now = spill_bytes()
        if now <= SPILL_KEPT:
            break
        time.sleep(0.1)
    return now


def settled():
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    return anonymous_bytes()


# Warm up what is allocated once: BLAS buffers, thread pools, an own pool of the library.
with torch.no_grad():
    for i in range(2):
        mlp(depth=2)(rows(i))
before = settled()
anonymous, spilled = [], []
with torch.no_grad():
    for round_ in range(6):
        model = mlp(depth=16 + round_)
        for i in range(3):
            record.tensor(f"output{round_}.{i}", model(rows(i)))
        del model
        anonymous.append(settled() - before)
        spilled.append(settled_spill_bytes())
record.notes |= {"anonymous_left": anonymous, "spill_left": spilled}
record.save()
