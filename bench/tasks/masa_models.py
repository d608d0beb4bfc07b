#!/usr/bin/env python3
"""The nine networks of the Masa paper (masa_networks.py) as TorchScript files with random weights. Started by masa_serving.py.

models REPOSITORY SCALE NAME...: NAME/1/model.pt, and NAME/about.json with the bytes of weights, of the largest layer's, and the name of
the input. SCALE: of the weights' bytes; channels are scaled by its root. All take one image of 224 x 224, and make it as large as they need.

answers REPOSITORY SAMPLES COUNT NAME...: what each answers alone in plain PyTorch to COUNT images, K.in and NAME.K.out, raw floats."""
import json
import pathlib
import sys

import torch
from torch import nn

SHAPE = (1, 3, 224, 224)


class Sized(nn.Module):
    """Layers behind an image of so many pixels a side."""

    def __init__(self, side, *layers):
        super().__init__()
        self.side, self.layers = side, nn.Sequential(*layers)

    def forward(self, image):
        return self.layers(nn.functional.interpolate(image, size=(self.side, self.side))).flatten(1)


class Inception(nn.Module):
    def __init__(self, width, inputs, one, reduce3, three, reduce5, five, pool):
        super().__init__()
        def conv(i, o, kernel):
            return nn.Sequential(nn.Conv2d(i, o, kernel, padding=kernel // 2), nn.ReLU())
        inputs, one, reduce3, three, reduce5, five, pool = map(width, (inputs, one, reduce3, three, reduce5, five, pool))
        self.paths = nn.ModuleList([conv(inputs, one, 1), nn.Sequential(conv(inputs, reduce3, 1), conv(reduce3, three, 3)),
                                    nn.Sequential(conv(inputs, reduce5, 1), conv(reduce5, five, 5)),
                                    nn.Sequential(nn.MaxPool2d(3, 1, 1), conv(inputs, pool, 1))])

    def forward(self, x):
        return torch.cat([path(x) for path in self.paths], 1)


def conv(width, inputs, outputs, kernel, stride=1, padding=0, groups=1, pool=None):
    """pool: (kernel, stride) of a pooling behind it that counts a part as a whole."""
    layers = [nn.Conv2d(3 if inputs == 3 else width(inputs), width(outputs), kernel, stride, padding, groups=groups), nn.ReLU()]
    return layers + ([nn.MaxPool2d(*pool, ceil_mode=True)] if pool else [])


def dense(width, inputs, hidden, classes, side):
    first, hidden = width(inputs) * side * side, width(hidden)
    return [nn.Flatten(), nn.Linear(first, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, classes)]


def levi(width, classes):
    return Sized(227, *conv(width, 3, 96, 7, 4, pool=(3, 2)), *conv(width, 96, 256, 5, padding=2, pool=(3, 2)),
                 *conv(width, 256, 384, 3, padding=1, pool=(3, 2)), *dense(width, 384, 512, classes, 7))


def alexnet(width, classes):
    return Sized(227, *conv(width, 3, 96, 11, 4, pool=(3, 2)), *conv(width, 96, 256, 5, padding=2, groups=2, pool=(3, 2)),
                 *conv(width, 256, 384, 3, padding=1), *conv(width, 384, 384, 3, padding=1, groups=2),
                 *conv(width, 384, 256, 3, padding=1, groups=2, pool=(3, 2)), *dense(width, 256, 4096, classes, 6))


def vgg_s(width, classes):
    return Sized(224, *conv(width, 3, 96, 7, 2, pool=(3, 3)), *conv(width, 96, 256, 5, pool=(2, 2)),
                 *conv(width, 256, 512, 3, padding=1), *conv(width, 512, 512, 3, padding=1),
                 *conv(width, 512, 512, 3, padding=1, pool=(3, 3)), *dense(width, 512, 4096, classes, 6))


def tiny_yolo(width, _):
    layers, inputs = [], 3
    for outputs in (16, 32, 64, 128, 256, 512, 1024, 1024):
        layers += conv(width, inputs, outputs, 3, padding=1, pool=(2, 2) if outputs <= 256 else None)
        inputs = outputs
    return Sized(416, *layers, nn.Conv2d(width(1024), 125, 1))


def googlenet(width, classes):
    rows = [(192, 64, 96, 128, 16, 32, 32), (256, 128, 128, 192, 32, 96, 64), None, (480, 192, 96, 208, 16, 48, 64),
            (512, 160, 112, 224, 24, 64, 64), (512, 128, 128, 256, 24, 64, 64), (512, 112, 144, 288, 32, 64, 64),
            (528, 256, 160, 320, 32, 128, 128), None, (832, 256, 160, 320, 32, 128, 128), (832, 384, 192, 384, 48, 128, 128)]
    layers, inputs = [], None
    for row in rows:
        layers.append(Inception(width, *(row if inputs is None else (inputs, *row[1:]))) if row else nn.MaxPool2d(3, 2, 1))
        # The widths of the paths are rounded one by one, so their sum is what the next one gets.
        if row:
            inputs = Joined(sum(width(row[k]) for k in (1, 3, 5, 6)))
    return Sized(224, *conv(width, 3, 64, 7, 2, 3, pool=(3, 2)), *conv(width, 64, 64, 1),
                 *conv(width, 64, 192, 3, padding=1, pool=(3, 2)), *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                 nn.Linear(inputs, classes))


class Joined(int):
    """Channels that are scaled already."""


def width_of(scale):
    def width(channels):
        return int(channels) if isinstance(channels, Joined) else max(2, 2 * round(channels * scale ** 0.5 / 2))
    return width


MADE = {"agenet": (levi, 8), "gendernet": (levi, 2), "facenet": (alexnet, 2), "sos": (alexnet, 5), "googlenet": (googlenet, 2),
        "tinyyolo": (tiny_yolo, 125), "emotionnet": (vgg_s, 7), "memnet": (alexnet, 1), "scenenet": (alexnet, 205)}


def models(repository, scale, *names):
    for name in names:
        torch.manual_seed(1 + list(MADE).index(name))
        make, classes = MADE[name]
        model = make(width_of(float(scale)), classes).eval()
        file = pathlib.Path(repository) / name / "1" / "model.pt"
        file.parent.mkdir(parents=True, exist_ok=True)
        with torch.no_grad():
            traced = torch.jit.trace(model, torch.randn(SHAPE), check_trace=False)
        traced.save(str(file))
        sizes = [t.numel() * t.element_size() for t in model.state_dict().values()]
        _, argument = traced.graph.inputs()
        (file.parent.parent / "about.json").write_text(json.dumps({
            "bytes": sum(sizes), "largest": max(sizes), "input": argument.debugName().split(".")[0]}))


def answers(repository, samples, count, *names):
    images = []
    for k in range(int(count)):
        torch.manual_seed(1000 + k)
        images.append(torch.randn(SHAPE))
        (pathlib.Path(samples) / f"{k}.in").write_bytes(images[-1].numpy().tobytes())
    for name in names:
        model = torch.jit.load(f"{repository}/{name}/1/model.pt").eval()
        for k, image in enumerate(images):
            with torch.no_grad():
                (pathlib.Path(samples) / f"{name}.{k}.out").write_bytes(model(image).numpy().tobytes())


if __name__ == "__main__":
    {"models": models, "answers": answers}[sys.argv[1]](*sys.argv[2:])
