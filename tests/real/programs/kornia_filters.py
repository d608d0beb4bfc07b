"""kornia: filters and a convolutional network."""
import kornia
from _real import nn, out, torch

net = nn.Sequential(nn.Conv2d(3, 256, 3, padding=1), nn.ReLU(), *(nn.Conv2d(256, 256, 3, padding=1) for _ in range(14))).eval()
with torch.no_grad():
    for i in range(2):
        picture = kornia.filters.gaussian_blur2d(torch.rand(1, 3, 32, 32), (5, 5), (1.5, 1.5))
        out(f"out{i}", [net(picture), kornia.geometry.rotate(picture, torch.tensor([30.0])), kornia.filters.sobel(picture)])
