"""TorchScript: trace, script, freeze, save, load; each form runs a few times."""
import io

import torch

from _models import convnet, image, mlp, rows
from _record import begin

record, _ = begin()


def infer(name, model, data):
    for i in range(3):
        record.tensor(f"{name}{i}", model(data(i)))


with torch.no_grad():
    model = convnet(depth=12)
    infer("eager", model, image)
    traced = torch.jit.trace(model, image(0))
    infer("traced", traced, image)
    traced.save("traced.pt")
    frozen = torch.jit.freeze(traced)
    infer("frozen", frozen, image)
    infer("loaded", torch.jit.load("traced.pt"), image)
    buffer = io.BytesIO()
    torch.jit.save(frozen, buffer)
    buffer.seek(0)
    infer("frozen and loaded", torch.jit.load(buffer), image)
    infer("scripted", torch.jit.script(mlp(depth=12)), rows)
record.save()
