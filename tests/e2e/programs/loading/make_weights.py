"""Writes checkpoints of one model: make_weights.py OUT KIND PATH [SEED] [DEPTH]."""
import argparse
import collections
import pathlib

import numpy
import torch

from _models import mlp, rows
from _record import begin

record, (kind, path, *rest) = begin()
torch.manual_seed(int(rest[0]) if rest else 7)
if kind in ("gpt2", "llama"):
    from _models import language_model
    model = language_model(kind, *rest[1:])
    model.save_pretrained(path)
    torch.save({k: v for k, v in model.state_dict().items()}, f"{path}/whole.pth")
elif kind.startswith("vision:"):
    from _models import torchvision_model
    torch.save(torchvision_model(kind.partition(":")[2]).state_dict(), path)
else:
    model = mlp(depth=int(rest[1]) if len(rest) > 1 else 24)
    state = model.state_dict()
    if kind == "safetensors":
        from safetensors.torch import save_file
        save_file(state, path)
    elif kind == "jit":
        with torch.no_grad():
            torch.jit.script(model).save(path)
    elif kind == "training":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        model(torch.ones(1, 1024)).sum().backward()
        optimizer.step()
        torch.save({"epoch": 3, "nested": {"model": state, "list": [optimizer.state_dict()]}}, path)
    elif kind == "objects":
        settings = argparse.Namespace(rate=numpy.float64(0.1), seen=numpy.arange(5), home=pathlib.PurePosixPath("/home"))
        torch.save({"hyper_parameters": settings, "losses": collections.defaultdict(list, {(1, "a"): [bytearray(b"x")]}),
                    "state_dict": state}, path)
    elif kind == "module":
        torch.save(model, path, pickle_protocol=4)
    elif kind == "pt2":
        torch.export.save(torch.export.export(model.eval(), (rows(0),)), path)
    elif kind == "old":
        torch.save(state, path, _use_new_zipfile_serialization=False)
    else:
        torch.save(state, path)
record.check("written", True)
record.save()
