"""ResNet-50 and ResNet-152 with torchvision's names, so that its checkpoints load.

He, Zhang, Ren, Sun, "Deep residual learning for image recognition", 2015; the stride sits on the
3 x 3 convolution, as in the weights that are handed around.
"""

from __future__ import annotations

import torch
from torch import nn

__all__ = ["Bottleneck", "ResNet", "activation_dimension", "resnet50", "resnet152"]

WIDTHS = (64, 128, 256, 512)


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3 and 1 x 1 convolutions, and what came in added to what comes out."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        y = torch.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """A stem, four layers of ``depths`` residual blocks, and a classifier."""

    def __init__(self, depths: tuple[int, ...], classes: int = 1000) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, 2, padding=1)
        inputs = 64
        for i, (depth, width) in enumerate(zip(depths, WIDTHS, strict=True)):
            blocks = []
            for j in range(depth):
                blocks.append(Bottleneck(inputs, width, 2 if i > 0 and j == 0 else 1))
                inputs = width * Bottleneck.expansion
            setattr(self, f"layer{i + 1}", nn.Sequential(*blocks))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
        for i in range(len(WIDTHS)):
            x = getattr(self, f"layer{i + 1}")(x)
        return self.fc(torch.flatten(self.avgpool(x), 1))


DEPTHS = {"resnet50": (3, 4, 6, 3), "resnet152": (3, 8, 36, 3)}


def resnet50(classes: int = 1000) -> ResNet:
    return ResNet(DEPTHS["resnet50"], classes)


def resnet152(classes: int = 1000) -> ResNet:
    return ResNet(DEPTHS["resnet152"], classes)


def activation_dimension(depths: tuple[int, ...], size: int = 224) -> int:
    """How many numbers all residual blocks put out for an image of ``size`` x ``size``.

    Layer i has ``depths[i]`` outputs of ``4 * WIDTHS[i]`` channels, ``size / 2**(i + 2)`` wide.
    """
    total = 0
    for i, (depth, width) in enumerate(zip(depths, WIDTHS, strict=True)):
        side = -(-size // 2 ** (i + 2))
        total += depth * Bottleneck.expansion * width * side**2
    return total
