"""Construct, load, infer: load_model.py OUT HOW PATH [stop|lean|gone]. `stop`: end before the first inference, so that the
counters show what loading alone did. `lean`: weights are not looked at by numpy. `gone`: one is, and then there is no model any more. `HOW` is a way of loading, with options
after colons, as in pth:assign."""
import io
import sys
import time

import torch

from _models import mlp, rows
from _record import begin

record, (how, path, *rest) = begin()
how, *options = how.split(":")
torch.manual_seed(1)


def disk_bytes():
    with open("/proc/self/io") as file:
        return int(next(line.split()[1] for line in file if line.startswith("read_bytes:")))


def read(options):
    if how == "safetensors":
        from safetensors.torch import load_file
        return load_file(path)
    if how == "bytes":
        with open(path, "rb") as file:
            return torch.load(io.BytesIO(file.read()))
    arguments = {"mmap": {"mmap": True}, "cpu": {"map_location": "cpu"}, "device": {"map_location": torch.device("cpu")},
                 "weights": {"weights_only": True}, "pickle": {"weights_only": False}}
    given = {k: v for option in options for k, v in arguments.get(option, {}).items()}
    if how == "file":
        with open(path, "rb") as file:
            return torch.load(file, **given)
    if how in ("objects", "module") and torch.__version__ >= "2":
        given["weights_only"] = False
    return torch.load(path, **given)


def construct(device):
    with torch.device(device) if device == "meta" else torch.no_grad():
        model = mlp()
    return model.to(torch.bfloat16) if "bf16" in options else model


if how == "jit":
    before = disk_bytes()
    began = time.monotonic()
    model = torch.jit.load(path)
elif how in ("pt2", "module"):
    before = disk_bytes()
    began = time.monotonic()
    model = read(options) if how == "module" else torch.export.load(path).module()
else:
    model = construct("meta" if "meta" in options else "cpu")
    before = disk_bytes()
    began = time.monotonic()
    state = read(options)
    if how == "training":
        momentum = [v for v in state["nested"]["list"][0]["state"].values()]
        state = state["nested"]["model"]
    elif how == "objects":
        assert (state["hyper_parameters"].seen == range(5)).all() and (1, "a") in state["losses"]
        state = state["state_dict"]
    more = {"assign": True} if "assign" in options else {}
    model.load_state_dict(state, **more)
    del state
    if "again" in options:
        model.load_state_dict(read(options))
if how != "pt2":  # which was exported as one that infers
    model.eval()
record.notes["load_seconds"] = time.monotonic() - began
record.notes["read_bytes"] = disk_bytes() - before
record.notes["weight_bytes"] = sum(p.numel() * p.element_size() for p in model.parameters() if p.dim() > 1)
if rest != ["stop"]:
    dtype = next(model.parameters()).dtype
    with torch.no_grad():
        for i in range(3):
            record.tensor(f"output{i}", model(rows(i).to(dtype)))
    if rest == ["gone"]:
        large = next(p for p in model.parameters() if p.dim() > 1)
        record.check("numbers", bool(large.detach().numpy().sum() != 0))
        del large, model
    elif rest != ["lean"]:
        record.module("model", model)
    if how == "training":
        for i, entry in enumerate(momentum):
            record.tensor(f"momentum{i}", entry["momentum_buffer"])
record.check("reached", True)
record.save()
sys.stdout.flush()
