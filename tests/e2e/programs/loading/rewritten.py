"""Checkpoints that change under a program: rewritten.py OUT SCENARIO A.ckpt B.ckpt, two checkpoints of the same size.
All of it happens in the working directory."""
import os
import shutil
import subprocess
import sys

import torch

from _models import mlp, rows
from _record import begin

record, (scenario, one, other) = begin()
kind, scenario = scenario.split(":")
torch.manual_seed(1)
path = "model.ckpt"
model = mlp()


def load():
    if kind == "safetensors":
        from safetensors.torch import load_file
        model.load_state_dict(load_file(path))
    else:
        model.load_state_dict(torch.load(path, **({"mmap": True} if kind == "mmap" else {})))


def infer(name):
    with torch.no_grad():
        for i in range(2):
            record.tensor(f"{name}{i}", model(rows(i)))


def overwrite(source):
    """In place: the same inode, the same size."""
    with open(source, "rb") as file, open(path, "r+b") as out:
        shutil.copyfileobj(file, out, 8 << 20)


shutil.copyfile(one, path)
if scenario == "save":
    load()
    if kind == "safetensors":
        from safetensors.torch import save_file
        save_file(model.state_dict(), path)
    else:
        torch.save(model.state_dict(), path)
    infer("saved over")
    load()
    infer("loaded again")
elif scenario == "process":
    load()
    program = f"import shutil; f = open({path!r}, 'r+b'); f.truncate(0); shutil.copyfileobj(open({other!r}, 'rb'), f)"
    subprocess.run([sys.executable, "-c", program], check=True)
    infer("rewritten")
    load()
    infer("loaded again")
elif scenario == "renamed":
    load()
    shutil.copyfile(other, "new")
    os.replace("new", path)
    infer("before")
    load()
    infer("after")
elif scenario == "in-place":
    # At once, and again and again: file times move in ticks.
    for turn in range(4):
        overwrite(other if turn % 2 else one)
        load()
        record.module(f"turn{turn}", model)
    infer("after")
elif scenario == "in-place-data":
    # One weight's bytes, so that names, sizes and the table of contents stay.
    load()
    with open(path, "r+b") as file:
        data = file.read()
        at = data.find(model[0].weight.detach().numpy().tobytes()[:64])
        assert at > 0
        file.seek(at + 5000)
        file.write(bytes(20000))
    infer("before")
    load()
    record.module("after", model)
elif scenario == "truncated":
    load()
    os.truncate(path, os.path.getsize(path) // 2)
    try:
        load()
        record.check("refused", False)
    except Exception:
        record.check("refused", True)
    infer("still")
    shutil.copyfile(other, path)
    load()
    infer("after")
record.save()
