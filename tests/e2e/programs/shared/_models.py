"""Models for the test programs: two small ones in plain torch, and torchvision's five.

torchvision has no CPU build for PyTorch 2.13, but its model definitions are pure Python. There they are imported from
Debian's python3-torchvision with the packages around them, which would load the C extension, left out.
"""
import importlib
import os
import sys
import types

import torch
from torch import nn

TORCHVISION = os.environ.get("SWAPNET_TORCHVISION", "/usr/lib/python3/dist-packages/torchvision")


def undamped(module):
    """PyTorch's default start shrinks a signal to 0.41 per layer: after 20 layers a wrong first weight would be lost in
    the rounding. Scaled by sqrt(6), the last bits of the output depend on every layer."""
    with torch.no_grad():
        for weight in module.parameters():
            if weight.dim() > 1:
                weight.mul_(6 ** 0.5)
    return module


def linear(width=1024):
    return undamped(nn.Linear(width, width))


def mlp(width=1024, depth=24):
    """depth * 4 MiB of weights at the default width, and next to no activations."""
    layers = []
    for _ in range(depth):
        layers += [linear(width), nn.ReLU()]
    return nn.Sequential(*layers).eval()


def tall():
    """Two layers of 40 MiB among eight of 4 MiB."""
    wide = [undamped(nn.Linear(1024, 10240)), nn.ReLU(), undamped(nn.Linear(10240, 1024)), nn.ReLU()]
    return nn.Sequential(*mlp(depth=4), *wide, *mlp(depth=4)).eval()


class Convnet(nn.Module):
    """Convolutions of 2.25 MiB each with BatchNorm and skips, then a linear head."""

    def __init__(self, channels=256, depth=16, classes=1000):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.convs = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(depth))
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for _ in range(depth))
        self.head = nn.Linear(channels, classes)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        for conv, norm in zip(self.convs, self.norms):
            x = x + torch.relu(norm(conv(x)))
        return self.head(x.mean((2, 3)))


def convnet(**options):
    return Convnet(**options).eval()


def image(seed, batch=1, size=8):
    return torch.rand(batch, 3, size, size, generator=torch.Generator().manual_seed(seed))


def rows(seed, batch=4, width=1024):
    return torch.randn(batch, width, generator=torch.Generator().manual_seed(seed))


def batch(seed):
    """So many that computing a layer takes longer than reading it."""
    return rows(seed, 256)


_TORCHVISION_MODELS = {
    "vgg19": "vgg", "resnet18": "resnet", "resnet101": "resnet", "resnet152": "resnet",
    "vit_b_16": "vision_transformer", "mobilenet_v2": "mobilenetv2",
    # Served ones only.
    "alexnet": "alexnet", "convnext_tiny": "convnext", "densenet121": "densenet",
    "googlenet": "googlenet", "inception_v3": "inception", "maxvit_t": "maxvit", "mnasnet1_0": "mnasnet",
    "mobilenet_v3_small": "mobilenetv3", "regnet_y_400mf": "regnet", "resnet50": "resnet", "resnext50_32x4d": "resnet",
    "shufflenet_v2_x1_0": "shufflenetv2", "squeezenet1_1": "squeezenet", "swin_t": "swin_transformer", "vgg11": "vgg",
}


def torchvision_model(name):
    """One of torchvision's models with random weights, in eval mode."""
    if not torch.__version__.startswith("1.13"):
        _stub_torchvision()
    module = importlib.import_module(f"torchvision.models.{_TORCHVISION_MODELS[name]}")
    # VGG's own initialisation draws 574 MB of normal numbers; PyTorch's default one, scaled, serves as well.
    options = {"init_weights": False} if name in ("vgg19", "vgg11", "googlenet", "inception_v3") else {}
    model = getattr(module, name)(**options)
    if name in ("vgg19", "vgg11"):
        undamped(model)
    if name == "vit_b_16":
        nn.init.normal_(model.heads.head.weight, std=0.02)  # zero by default: every output would be zero
    return model.eval()


def _stub_torchvision():
    """Puts bare packages in the place of those whose __init__ pulls in the C extension or PIL."""
    for name, path in (("torchvision", ""), ("torchvision.models", "models"), ("torchvision.ops", "ops"),
                       ("torchvision.transforms", "transforms")):
        package = types.ModuleType(name)
        package.__path__ = [os.path.join(TORCHVISION, path)]
        sys.modules[name] = package
    presets = types.ModuleType("torchvision.transforms._presets")
    presets.ImageClassification = lambda *args, **options: None
    presets.InterpolationMode = types.SimpleNamespace(BICUBIC="bicubic", BILINEAR="bilinear")
    utils = types.ModuleType("torchvision.utils")
    utils._log_api_usage_once = lambda *args: None
    utils._make_ntuple = lambda x, n: tuple(x) if isinstance(x, (list, tuple)) else (x,) * n
    sys.modules[presets.__name__] = presets
    sys.modules[utils.__name__] = utils


def language_model(kind, size="small"):
    """GPT-2 or a Llama with random weights, from transformers: small, or about 1.4 and 1.1 GB."""
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
    if kind == "gpt2":
        options = dict(n_layer=24, n_embd=1024, n_head=16) if size == "large" else dict(
            n_layer=6, n_embd=512, n_head=8, vocab_size=8000, bos_token_id=0, eos_token_id=0)
        return GPT2LMHeadModel(GPT2Config(**options)).eval()
    options = dict(hidden_size=1536, intermediate_size=4096, num_hidden_layers=8, num_attention_heads=12,
                   num_key_value_heads=4, vocab_size=16000) if size == "large" else dict(
        hidden_size=512, intermediate_size=1376, num_hidden_layers=6, num_attention_heads=8, num_key_value_heads=4,
        vocab_size=8000)
    return LlamaForCausalLM(LlamaConfig(**options)).eval()
