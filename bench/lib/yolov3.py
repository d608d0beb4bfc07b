"""YOLOv3 (Redmon and Farhadi 2018): Darknet-53 with heads at three scales; 62 million weights."""
import torch
from torch import nn
from torch.nn import functional

CLASSES = 80
ANCHORS_PER_SCALE = 3
OUTPUTS = ANCHORS_PER_SCALE * (5 + CLASSES)
# Residual blocks behind each halving of the resolution, and the channels there.
STAGES = ((1, 64), (2, 128), (8, 256), (8, 512), (4, 1024))


def unit(inputs, outputs, kernel, stride=1):
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False),
                         nn.BatchNorm2d(outputs), nn.LeakyReLU(0.1, inplace=True))


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.body = nn.Sequential(unit(channels, channels // 2, 1), unit(channels // 2, channels, 3))

    def forward(self, x):
        return x + self.body(x)


class Darknet53(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = unit(3, 32, 3)
        self.stages = nn.ModuleList(
            nn.Sequential(unit(channels // 2, channels, 3, 2),
                          *(Residual(channels) for _ in range(blocks)))
            for blocks, channels in STAGES)

    def forward(self, x):
        x = self.stem(x)
        maps = []
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        return maps[2:]


class Head(nn.Module):
    """Five alternating convolutions; from there to the predictions, and on to the next scale."""

    def __init__(self, inputs, channels):
        super().__init__()
        layers, width = [], inputs
        for _ in range(2):
            layers += [unit(width, channels, 1), unit(channels, 2 * channels, 3)]
            width = 2 * channels
        self.body = nn.Sequential(*layers, unit(width, channels, 1))
        self.predict = nn.Sequential(unit(channels, 2 * channels, 3),
                                     nn.Conv2d(2 * channels, OUTPUTS, 1))

    def forward(self, x):
        x = self.body(x)
        return x, self.predict(x)


class YoloV3(nn.Module):
    """Images whose sides are multiples of 32 to the raw predictions of all three scales."""

    def __init__(self):
        super().__init__()
        self.backbone = Darknet53()
        self.heads = nn.ModuleList((Head(1024, 512), Head(512 + 256, 256), Head(256 + 128, 128)))
        self.lateral = nn.ModuleList((unit(512, 256, 1), unit(256, 128, 1)))

    def forward(self, images):
        maps = self.backbone(images)
        x, found = self.heads[0](maps[2])
        outputs = [found]
        for head, lateral, skip in zip(self.heads[1:], self.lateral, (maps[1], maps[0])):
            x = torch.cat((functional.interpolate(lateral(x), scale_factor=2.0), skip), 1)
            x, found = head(x)
            outputs.append(found)
        return torch.cat([found.flatten(1) for found in outputs], 1)
