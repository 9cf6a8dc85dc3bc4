"""A ResNet in plain PyTorch with torchvision's semantics: 7x7 stem of stride 2, max pooling, four stages of basic or
bottleneck blocks, the bottleneck's stride on its 3x3 convolution, batch norm everywhere, global average pooling."""
import torch.nn as nn
import torch.nn.functional as F


class ConvNorm(nn.Module):
    def __init__(self, inputs, outputs, kernel, stride=1):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
        self.bn = nn.BatchNorm2d(outputs)

    def forward(self, x):
        return self.bn(self.conv(x))


class Block(nn.Module):
    """Two 3x3 convolutions, or 1x1, 3x3, 1x1 for a bottleneck, whose last one widens four times."""

    def __init__(self, inputs, width, stride, bottleneck):
        super().__init__()
        kernels = (1, 3, 1) if bottleneck else (3, 3)
        outputs = 4 * width if bottleneck else width
        strided = 2 if bottleneck else 1
        channels = [inputs] + [width] * (len(kernels) - 1) + [outputs]
        self.depth = len(kernels)
        for i, kernel in enumerate(kernels, 1):
            step = stride if i == strided else 1
            conv = nn.Conv2d(channels[i - 1], channels[i], kernel, step, padding=kernel // 2, bias=False)
            self.add_module(f"conv{i}", conv)
            self.add_module(f"bn{i}", nn.BatchNorm2d(channels[i]))
        self.down = ConvNorm(inputs, outputs, 1, stride) if stride != 1 or inputs != outputs else None

    def forward(self, x):
        y = x
        for i in range(1, self.depth + 1):
            y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(y))
            if i < self.depth:
                y = F.relu(y)
        return F.relu(y + (x if self.down is None else self.down(x)))


class ResNet(nn.Module):
    def __init__(self, blocks, widths, classes, bottleneck):
        super().__init__()
        self.stem = ConvNorm(3, widths[0], 7, 2)
        channels = widths[0]
        stages = []
        for s, (count, width) in enumerate(zip(blocks, widths)):
            stage = []
            for b in range(count):
                stage.append(Block(channels, width, 2 if b == 0 and s > 0 else 1, bottleneck))
                channels = 4 * width if bottleneck else width
            stages.append(nn.ModuleList(stage))
        self.stages = nn.ModuleList(stages)
        self.head = nn.Linear(channels, classes)

    def forward(self, images):
        x = F.max_pool2d(F.relu(self.stem(images)), 3, 2, 1)
        for stage in self.stages:
            for block in stage:
                x = block(x)
        return self.head(x.mean((2, 3)))
