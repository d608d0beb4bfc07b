"""Checkpoints: save, load, load over a model, save again over the same path. checkpoint.py OUT pth|mmap|safetensors."""
import hashlib

import torch

from _models import mlp, rows
from _record import begin

record, args = begin()
kind = args[0]


def save(model, path):
    if kind == "safetensors":
        from safetensors.torch import save_file
        save_file(model.state_dict(), path)
    else:
        torch.save(model.state_dict(), path)


def load(path):
    if kind == "safetensors":
        from safetensors.torch import load_file
        return load_file(path)
    return torch.load(path, mmap=True) if kind == "mmap" else torch.load(path)


def infer(name, model):
    with torch.no_grad():
        for i in range(3):
            record.tensor(f"{name}{i}", model(rows(i)))


source = mlp()
save(source, "a.ckpt")
infer("source", source)
del source
torch.manual_seed(1)
model = mlp()
model.load_state_dict(load("a.ckpt"))
infer("loaded", model)
save(model, "a.ckpt")  # over the file it came from
infer("after saving over", model)
with open("a.ckpt", "rb") as file:
    record.value("saved file", hashlib.file_digest(file, "sha256").hexdigest())
if kind != "pth":
    state = load("a.ckpt")
    empty = torch.nn.Sequential(*[m for m in mlp()])
    empty.load_state_dict(state, assign=True)
    del state
    infer("assigned", empty.eval())
record.module("model", model)
record.save()
