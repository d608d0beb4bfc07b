"""What a pass costs the library when nothing changes any more: steady.py OUT vgg|resnet|transformer|language, or one of torchvision."""
import ctypes
import resource

import torch
from torch import nn

from _record import begin, status

WARM_UP, PASSES, TRIES = 24, 8, 8


def vgg():
    layers, channels = [], 3
    for width, count in ((64, 2), (128, 2), (256, 3), (512, 3)):
        for _ in range(count):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(True)]
            channels = width
        layers.append(nn.MaxPool2d(2))
    layers += [nn.Flatten(), nn.Linear(512 * 6 * 6, 512), nn.ReLU(True), nn.Linear(512, 1000)]
    return nn.Sequential(*layers), (1, 3, 96, 96)  # 69 MiB


class Bottleneck(nn.Module):
    def __init__(self, before, width, stride):
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(before, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True),
            nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width))
        self.short = nn.Identity() if before == 4 * width else nn.Conv2d(before, 4 * width, 1, stride, bias=False)

    def forward(self, x):
        return torch.relu_(self.path(x) + self.short(x))


def resnet():
    layers, before = [nn.Conv2d(3, 64, 7, 2, 3), nn.ReLU(True), nn.MaxPool2d(3, 2, 1)], 64
    for width, count, stride in ((64, 2, 1), (128, 2, 2), (256, 4, 2), (512, 2, 2)):
        for i in range(count):
            layers.append(Bottleneck(before, width, 1 if i else stride))
            before = 4 * width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 1000)]
    return nn.Sequential(*layers), (1, 3, 160, 160)  # 65 MiB


class Block(nn.Module):
    def __init__(self, width=512, heads=8):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.into, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (part.reshape(batch, length, self.heads, -1).transpose(1, 2)
                   for part in self.into(self.norms[0](x)).chunk(3, -1))
        weights = torch.softmax(q @ k.transpose(-1, -2) / 8, -1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norms[1](x))


def transformer():
    return nn.Sequential(*(Block() for _ in range(6))), (1, 160, 512)  # 72 MiB


class Language(nn.Module):
    """Looks its tokens up in the table by which it multiplies at the end."""
    def __init__(self, words=12000, width=512, length=96):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block() for _ in range(4)))
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens):
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        return self.head(self.blocks(x)[:, -1:])


def language():
    return Language(), (1, 96)  # 72 MiB, 23 of them the table


def torchvisions(name):
    import torchvision
    return getattr(torchvision.models, name)(weights=None), (1, 3, 224, 224)


def own_allocations():
    """How often the C half and the other one have taken memory so far from the heap, from the system, and from the heap
    for tensors of PyTorch's; zeros where malloc_meter.so is not preloaded."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "malloc_meter_count"):
        return [[0, 0, 0], [0, 0, 0]]
    return [[library.malloc_meter_count(half, kind) for kind in range(3)] for half in range(2)]


def watch():
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_meter_watch"):
        record.notes["watched"] = [library.malloc_meter_watch(b"libswapnet.so"), library.malloc_meter_watch(b"/swapnet/aten-")]


record, args = begin()
own = {"vgg": vgg, "resnet": resnet, "transformer": transformer, "language": language}
model, shape = own[args[0]]() if args[0] in own else torchvisions(args[0])
model.eval()
image = torch.randint(0, 12000, shape) if args[0] == "language" else torch.randn(shape)
with torch.no_grad():
    for _ in range(WARM_UP):
        output = model(image)
    watch()
    for _ in range(TRIES):
        before, faults, calls = status(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt, own_allocations()
        for _ in range(PASSES):
            output = model(image)
        calls = [[now - then for now, then in zip(*half)] for half in zip(own_allocations(), calls)]
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
        after = status()
        if not after or all(after[key] == before[key] for key in ("plans", "plan_reviews", "filled_bytes")):
            break
        # The machine was another one for a while: the plan was looked at, or made anew, or more reads were under way than
        # ever before, which takes another frame.
        for _ in range(WARM_UP):
            output = model(image)
record.check("finite", torch.isfinite(output).all())
record.tensor("output", output)
if after:
    record.notes["passes"] = PASSES
    record.notes["own_allocations"] = calls
    record.notes["steady"] = {key: after[key] - before[key] for key in after if key.endswith("_bytes") or key in ("plans", "plan_reviews")}
record.notes["faults_per_pass"] = faults / PASSES
record.save()
