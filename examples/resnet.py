"""ResNet-18 to ResNet-152 with torchvision's layers and names, to replace a missing torchvision.

Deep Residual Learning for Image Recognition (arXiv:1512.03385), with the stride in the 3 x 3 convolution as
in torchvision: state_dicts are interchangeable.
"""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn


def conv(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)


class Basic(nn.Module):
    """Two 3 x 3 convolutions beside a shortcut."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.make(inputs, width, outputs, stride)
        self.downsample = None
        if stride > 1 or inputs != outputs:
            self.downsample = nn.Sequential(conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def make(self, inputs: int, width: int, outputs: int, stride: int) -> None:
        self.conv1, self.bn1 = conv(inputs, width, 3, stride), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv(width, outputs, 3), nn.BatchNorm2d(outputs)

    def residual(self, x: Tensor) -> Tensor:
        return self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        return F.relu(self.residual(x) + shortcut)


class Bottleneck(Basic):
    """1 x 1, 3 x 3 and 1 x 1 convolutions, the last to four times the width."""

    expansion = 4

    def make(self, inputs: int, width: int, outputs: int, stride: int) -> None:
        self.conv1, self.bn1 = conv(inputs, width, 1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv(width, width, 3, stride), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = conv(width, outputs, 1), nn.BatchNorm2d(outputs)

    def residual(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))
        return self.bn3(self.conv3(x))


class ResNet(nn.Module):
    def __init__(self, block: type[Basic], depths: tuple[int, ...], classes: int = 1000) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, padding=3, bias=False), nn.BatchNorm2d(64)
        inputs = 64
        for number, depth in enumerate(depths):
            blocks = []
            for k in range(depth):
                width = 64 << number
                blocks.append(block(inputs, width, stride=2 if number and not k else 1))
                inputs = width * block.expansion
            setattr(self, f"layer{number + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, padding=1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


MODELS: dict[str, Callable[[], ResNet]] = {
    "resnet18": lambda: ResNet(Basic, (2, 2, 2, 2)),
    "resnet34": lambda: ResNet(Basic, (3, 4, 6, 3)),
    "resnet50": lambda: ResNet(Bottleneck, (3, 4, 6, 3)),
    "resnet101": lambda: ResNet(Bottleneck, (3, 4, 23, 3)),
    "resnet152": lambda: ResNet(Bottleneck, (3, 8, 36, 3)),
}
