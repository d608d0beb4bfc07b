"""ResNet-101, ViT-B/16 and a Llama of 1 GB, written out, so that nothing but PyTorch is needed; and the same in small."""
import math

import torch
from torch import nn
from torch.nn import functional as F


class Bottleneck(nn.Module):
    def __init__(self, channels, width, stride):
        super().__init__()
        out = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out)
        self.shortcut = None
        if stride != 1 or channels != out:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(self.bn3(self.conv3(y)) + (self.shortcut(x) if self.shortcut else x))


class ResNet(nn.Module):
    def __init__(self, blocks=(3, 4, 23, 3), width=64, classes=1000):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                                  nn.MaxPool2d(3, 2, 1))
        stages, channels = [], width
        for i, depth in enumerate(blocks):
            for j in range(depth):
                stages.append(Bottleneck(channels, width << i, 2 if i and not j else 1))
                channels = 4 * (width << i)
        self.stages, self.head = nn.Sequential(*stages), nn.Linear(channels, classes)

    def forward(self, x):
        return self.head(self.stages(self.stem(x)).mean((2, 3)))


class Attention(nn.Module):
    """Multi-head attention; with `rotation`, causal and with rotated positions."""

    def __init__(self, width, heads, kv_heads=None, bias=True):
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads or heads, width // heads
        self.q = nn.Linear(width, width, bias)
        self.k = nn.Linear(width, self.kv_heads * self.size, bias)
        self.v = nn.Linear(width, self.kv_heads * self.size, bias)
        self.o = nn.Linear(width, width, bias)

    def forward(self, x, rotation=None):
        batch, length, _ = x.shape
        q, k, v = (layer(x).view(batch, length, -1, self.size).transpose(1, 2) for layer in (self.q, self.k, self.v))
        if rotation is not None:
            q, k = rotated(q, *rotation), rotated(k, *rotation)
        k, v = (t.repeat_interleave(self.heads // self.kv_heads, 1) for t in (k, v))
        scores = q @ k.transpose(-1, -2) / math.sqrt(self.size)
        if rotation is not None:
            scores = scores + torch.full((length, length), -1e9, device=x.device).triu(1)
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, -1))


def rotated(t, cosine, sine):
    a, b = t.chunk(2, -1)
    return t * cosine + torch.cat((-b, a), -1) * sine


class Encoder(nn.Module):
    def __init__(self, width, heads, hidden):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.norm2, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class ViT(nn.Module):
    def __init__(self, size=224, patch=16, width=768, depth=12, heads=12, classes=1000):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.positions = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, width) * 0.02)
        self.layers = nn.Sequential(*(Encoder(width, heads, 4 * width) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(len(x), -1, -1), x), 1) + self.positions
        return self.head(self.norm(self.layers(x))[:, 0])


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * self.weight


class Decoder(nn.Module):
    def __init__(self, width, heads, kv_heads, hidden):
        super().__init__()
        self.norm1, self.attention = RMSNorm(width), Attention(width, heads, kv_heads, bias=False)
        self.norm2 = RMSNorm(width)
        self.gate, self.up = nn.Linear(width, hidden, False), nn.Linear(width, hidden, False)
        self.down = nn.Linear(hidden, width, False)

    def forward(self, x, rotation):
        x = x + self.attention(self.norm1(x), rotation)
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, width=1536, depth=8, heads=12, kv_heads=4, hidden=4096, vocabulary=16000):
        super().__init__()
        self.size, self.vocabulary = width // heads, vocabulary
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Decoder(width, heads, kv_heads, hidden) for _ in range(depth))
        self.norm, self.head = RMSNorm(width), nn.Linear(width, vocabulary, False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        turns = 10000 ** (-torch.arange(0, self.size, 2) / self.size)
        angles = torch.outer(torch.arange(tokens.shape[1], dtype=torch.float32), turns).repeat(1, 2)
        rotation = angles.cos().to(x.device), angles.sin().to(x.device)
        for layer in self.layers:
            x = layer(x, rotation)
        return self.head(self.norm(x))


class Three(nn.Module):
    """One of each kind."""

    def __init__(self):
        super().__init__()
        self.resnet, self.vit = ResNet((1, 2, 1, 1), 32, 100), ViT(32, 8, 256, 3, 4, 100)
        self.llama = Llama(256, 3, 8, 4, 512, 1000)

    def forward(self, x):
        tokens = (x[0, 0, 0, :12] * 1000).long().view(1, -1)
        return torch.cat((self.resnet(x), self.vit(x), self.llama(tokens)[:, -1]), 1)


def mlp(width, depth):
    return nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(depth)))


def image(size):
    return torch.rand(1, 3, size, size, generator=torch.Generator().manual_seed(1))


def tokens(vocabulary, length):
    return torch.randint(vocabulary, (1, length), generator=torch.Generator().manual_seed(1))


MODELS = {  # name: (model, input)
    "mlp": (lambda: mlp(2048, 16), lambda: torch.rand(4, 2048)),
    "resnet101": (ResNet, lambda: image(224)),
    "vit_b_16": (ViT, lambda: image(224)),
    "llama_1g": (Llama, lambda: tokens(16000, 64)),
    "mlp_small": (lambda: mlp(512, 8), lambda: torch.rand(4, 512)),
    "three_small": (Three, lambda: image(32)),
}


def build(name):
    """(the model in eval mode, an input), the same in every process."""
    torch.manual_seed(0)
    model, x = MODELS[name]
    return model().eval(), x()
