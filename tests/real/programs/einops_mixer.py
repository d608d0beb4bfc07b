"""einops: an MLP-Mixer of its layers."""
from _real import nn, out, torch
from einops.layers.torch import Rearrange, Reduce


class Residual(nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)


def block(patches, width):
    return nn.Sequential(Residual(nn.LayerNorm(width), Rearrange("b p c -> b c p"), nn.Linear(patches, patches), Rearrange("b c p -> b p c")),
                         Residual(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)))


model = nn.Sequential(Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=8, q=8), nn.Linear(192, 512), *(block(64, 512) for _ in range(6)),
                      Reduce("b p c -> b c", "mean"), nn.Linear(512, 10)).eval()
with torch.no_grad():
    for i in range(3):
        out(f"out{i}", model(torch.randn(2, 3, 64, 64)))
