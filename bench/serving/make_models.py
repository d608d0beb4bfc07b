#!/usr/bin/env python3
"""Started by zoo.py.

models REPOSITORY NAME...: traces torchvision networks with random weights, NAME/1/model.pt, and writes what they are into
NAME/about.json.

answers REPOSITORY FOLDER COUNT NAME...: what each answers alone in plain PyTorch to COUNT inputs, NAME.K.in and NAME.K.out, raw floats.

identity FILE: a TorchScript model that gives its input back.
"""
import json
import pathlib
import sys

import torch

SHAPE = (1, 3, 224, 224)


class Identity(torch.nn.Module):
    def forward(self, x: torch.Tensor):
        return x


def identity(file):
    torch.jit.script(Identity()).save(file)


def models(repository, *names):
    import torchvision
    for name in names:
        torch.manual_seed(1)
        folder = pathlib.Path(repository) / name
        (folder / "1").mkdir(parents=True, exist_ok=True)
        model = getattr(torchvision.models, name)().eval()
        torch.nn.init.normal_(list(model.parameters())[-2], std=0.02)  # some heads begin as zeros, as would all outputs
        with torch.no_grad():
            traced = torch.jit.trace(model, torch.randn(SHAPE), check_trace=False)
        traced.save(str(folder / "1" / "model.pt"))
        weights = {t.untyped_storage().data_ptr() if hasattr(t, "untyped_storage") else t.storage().data_ptr():
                   t.numel() * t.element_size() for t in model.state_dict().values()}
        _, argument = traced.graph.inputs()
        (folder / "about.json").write_text(json.dumps({"weight_bytes": sum(weights.values()),
                                                       "input": argument.debugName().split(".")[0]}))


def answers(repository, folder, count, *names):
    for name in names:
        model = torch.jit.load(f"{repository}/{name}/1/model.pt").eval()
        for k in range(int(count)):
            torch.manual_seed(1000 + k)
            image = torch.randn(SHAPE)
            with torch.no_grad():
                answer = model(image)
            for end, tensor in (("in", image), ("out", answer)):
                (pathlib.Path(folder) / f"{name}.{k}.{end}").write_bytes(tensor.numpy().tobytes())


if __name__ == "__main__":
    {"models": models, "answers": answers, "identity": identity}[sys.argv[1]](*sys.argv[2:])
