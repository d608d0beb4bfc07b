"""Loading in company: loading_threads.py OUT two|fork PTH OTHER, or many NUMBER ROWS."""
import hashlib
import inspect
import os
import threading

import torch

from _models import mlp, rows
from _record import begin, digest

record, (what, *paths) = begin()


def load(path):
    model = mlp()
    model.load_state_dict(torch.load(path))
    return model


def outputs(model):
    with torch.no_grad():
        return [digest(model(rows(i))) for i in range(3)]


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def hashes(model):
    """By address, without an operator: a forked child has no threads to compute with."""
    return [hashlib.sha256(tensor.detach().numpy()).hexdigest() for tensor in model.parameters()]


if what == "two":
    got = {}
    started = threading.Barrier(2)

    def work(path):
        started.wait()
        for turn in range(3):
            got[path, turn] = outputs(load(path))

    threads = [threading.Thread(target=work, args=(path,)) for path in paths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, path in enumerate(paths):
        for turn in range(3):
            record.value(f"{number} {turn}", got[path, turn])
elif what == "fork":
    ready = load(paths[0])
    expected, before = outputs(ready), hashes(ready)
    stop = threading.Event()

    def work():
        while not stop.is_set():
            load(paths[1])

    thread = threading.Thread(target=work)
    thread.start()
    same = 0
    for turn in range(20):
        child = os.fork()
        if not child:
            os._exit(0 if hashes(ready) == before else 1)
        same += os.waitpid(child, 0)[1] == 0
    stop.set()
    thread.join()
    record.check("children", same == 20)
    record.value("outputs", outputs(ready))
    record.check("same as before", outputs(ready) == expected)
elif what == "many":
    counts, (number, height) = [], map(int, paths)
    for i in range(number):
        torch.save({"w": torch.full((height, 1024), float(i))}, f"shard{i}.pth")
    for i in range(number):
        state = torch.load(f"shard{i}.pth")
        record.value(f"sum{i}", digest(state["w"]))
        if "mmap" in inspect.signature(torch.load).parameters:
            mapped = torch.load(f"shard{i}.pth", mmap=True)
            record.value(f"mapped{i}", digest(mapped["w"] + 1))
            del mapped
        del state
        counts.append(descriptors())
    record.notes["descriptors"] = counts
record.save()
