"""What the programs share: seeds, threads, a model, and digests on standard output, which must be equal with and without swapnet."""
import hashlib
import os
import random
import warnings

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
from torch import nn

warnings.filterwarnings("ignore")
random.seed(0)
np.random.seed(0)
torch.manual_seed(0)
torch.set_num_threads(2)


def digest(value):
    """Of the raw bytes of all tensors and arrays in it."""
    if isinstance(value, dict):
        return digest([digest(value[key]) for key in sorted(value)])
    if isinstance(value, (list, tuple)):
        return hashlib.sha256(" ".join(map(digest, value)).encode()).hexdigest()[:24]
    if isinstance(value, torch.Tensor):
        value = value.detach().to("cpu").contiguous().reshape(-1).view(torch.uint8).numpy()
    data = value.tobytes() if isinstance(value, np.ndarray) else str(value).encode()
    return hashlib.sha256(data).hexdigest()[:24]


def out(name, value):
    print("RESULT", name, digest(value), flush=True)


def mlp(width=1024, depth=10):
    """4 MiB a layer."""
    layers = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers).eval()


def rows(seed=1, width=1024, count=4):
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed))


# torchvision's CUDA build lacks its operators in a PyTorch without CUDA, and does not import without these two. Other libraries
# import it where it is installed.
_operators = torch.library.Library("torchvision", "DEF")
for _name in ("nms", "qnms"):
    _operators.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def _nms(boxes, scores, most):
    order, kept = scores.argsort(descending=True, stable=True), []
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    while order.numel():
        first, order = order[0], order[1:]
        kept.append(first)
        low, high = torch.maximum(boxes[first, :2], boxes[order, :2]), torch.minimum(boxes[first, 2:], boxes[order, 2:])
        both = (high - low).clamp(min=0).prod(1)
        order = order[both / (areas[first] + areas[order] - both) <= most]
    return torch.stack(kept) if kept else order


_operators.impl("nms", _nms, "CPU")


def torchvision():
    """For programs that call that operator."""
    import torchvision.extension
    torchvision.extension._has_ops = lambda: True
    return torchvision
