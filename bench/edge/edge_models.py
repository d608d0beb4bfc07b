#!/usr/bin/env python3
"""The models that edge_serving.py serves: TorchScript files with random weights, and what each answers alone.

edge_models.py REPOSITORY SAMPLES PIXELS NAME...: NAME/1/model.pt, NAME.in and NAME.out (raw bytes). Prints for each name a line of
JSON: bytes, the shape and the datatype of its input. Names are torchvision's; fcn_resnet50, whose output is the map alone; and gpt2,
twelve layers of GPT-2 small for 48 tokens. NAME-SEED has other weights than NAME in the last quarter of its bytes, as models have that
were made from one; NAME-allSEED has other ones everywhere."""
import json
import pathlib
import sys

import torch
import torchvision
from torch import nn

TOKENS, WIDTH, HEADS, LAYERS, WORDS = 48, 768, 12, 12, 50257


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mix, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.register_buffer("mask", torch.full((TOKENS, TOKENS), float("-inf")).triu(1))

    def forward(self, x):
        q, k, v = (part.reshape(1, TOKENS, HEADS, -1).transpose(1, 2) for part in self.mix(self.before(x)).chunk(3, -1))
        seen = torch.softmax(q @ k.transpose(-2, -1) / 8 + self.mask, -1) @ v
        x = x + self.out(seen.transpose(1, 2).reshape(1, TOKENS, WIDTH))
        return x + self.down(nn.functional.gelu(self.up(self.after(x))))


class Gpt2(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(TOKENS, WIDTH)
        self.blocks, self.last = nn.Sequential(*(Block() for _ in range(LAYERS))), nn.LayerNorm(WIDTH)

    def forward(self, tokens):
        x = self.last(self.blocks(self.words(tokens) + self.places.weight))
        return nn.functional.linear(x[:, -1:], self.words.weight)


class Map(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torchvision.models.segmentation.fcn_resnet50(weights=None, weights_backbone=None)

    def forward(self, image):
        return self.net(image)["out"]


def made(name, pixels):
    """(model, input)"""
    if name == "gpt2":
        return Gpt2(), torch.randint(0, WORDS, (1, TOKENS))
    model = Map() if name == "fcn_resnet50" else getattr(torchvision.models, name)()
    return model, torch.randn(1, 3, pixels, pixels)


def change(model, kept, seed):
    """Other weights in all but this part."""
    torch.manual_seed(seed)
    total, before = sum(p.numel() for p in model.parameters()), 0
    for p in model.parameters():
        before += p.numel()
        if before > kept * total:
            nn.init.normal_(p, std=0.02)


def main():
    repository, samples = map(pathlib.Path, sys.argv[1:3])
    for name in sys.argv[4:]:
        torch.manual_seed(1)
        file = repository / name / "1" / "model.pt"
        file.parent.mkdir(parents=True, exist_ok=True)
        base, _, seed = name.partition("-")
        model, given = made(base, int(sys.argv[3]))
        with torch.no_grad():
            if seed:
                change(model, 0 if seed.startswith("all") else 0.75, int(seed.removeprefix("all")))
            torch.jit.trace(model.eval(), given, check_trace=False).save(str(file))
            del model
            answer = torch.jit.load(str(file)).eval()(given)
        (samples / f"{name}.in").write_bytes(given.numpy().tobytes())
        (samples / f"{name}.out").write_bytes(answer.numpy().tobytes())
        print(json.dumps({"name": name, "bytes": file.stat().st_size, "shape": list(given.shape),
                          "datatype": "INT64" if given.dtype == torch.int64 else "FP32"}), flush=True)


if __name__ == "__main__":
    main()
