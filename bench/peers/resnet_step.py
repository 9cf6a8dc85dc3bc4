#!/usr/bin/env python3
"""One ResNet training step in PyTorch, on the CPU or a GPU: the peer of `trireme bench step`.

The step is what a careful user of PyTorch writes: channels last, autocast to bfloat16 with f32 weights, cuDNN's
algorithms picked by measurement, fused SGD, gradients released between steps, the batch copied from pinned memory in
the precision that the first convolution reads; with --ahead that copy is made on a stream of its own while the step
before computes. Prints one JSON object.
"""
import argparse
import json

import torch
import torch.nn as nn
import torch.nn.functional as F

import timing


class Bottleneck(nn.Module):
    def __init__(self, channels, width, stride):
        super().__init__()
        out = 4 * width
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out)
        self.down = None
        if stride != 1 or channels != out:
            self.down = nn.Sequential(nn.Conv2d(channels, out, 1, stride=stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return F.relu(y + (x if self.down is None else self.down(x)))


class ResNet50(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.conv = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
        self.bn = nn.BatchNorm2d(width)
        blocks, channels = [], width
        for stage, count in enumerate((3, 4, 6, 3)):
            for i in range(count):
                blocks.append(Bottleneck(channels, width << stage, 2 if stage > 0 and i == 0 else 1))
                channels = 4 * (width << stage)
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(channels, classes)

    def forward(self, images, labels):
        x = F.max_pool2d(F.relu(self.bn(self.conv(images))), 3, stride=2, padding=1)
        return F.cross_entropy(self.head(self.blocks(x).mean((2, 3))).float(), labels)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--width", type=int, default=64)
    p.add_argument("--image", type=int, default=224)
    p.add_argument("--classes", type=int, default=1000)
    p.add_argument("--batch", type=int, default=256)
    p.add_argument("--ahead", action="store_true", help="copy the next batch while this one computes")
    timing.add_options(p, steps=20, warmup=5, device="cuda")
    a = p.parse_args()

    torch.manual_seed(1)
    torch.backends.cudnn.benchmark = True
    gpu = a.device == "cuda"
    model = ResNet50(a.width, a.classes).to(a.device, memory_format=torch.channels_last)
    groups = [{"params": [q for q in model.parameters() if q.ndim >= 2], "weight_decay": 5e-4},
              {"params": [q for q in model.parameters() if q.ndim < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.SGD(groups, lr=0.05, momentum=0.9, fused=gpu)
    forward = timing.compiled(a, model)
    host = torch.randn(a.batch, 3, a.image, a.image).to(memory_format=torch.channels_last)
    host = host.to(torch.bfloat16 if a.bf16 else torch.float32)
    labels = torch.randint(a.classes, (a.batch,)).to(a.device)
    if gpu:
        host = host.pin_memory()
    precision = timing.set_precision(a)

    side = torch.cuda.Stream() if gpu and a.ahead else None
    there = []

    def copied():
        return host.to(a.device, non_blocking=True)

    def images_of_step():
        """Of this step; with --ahead, those of the next are on their way when it returns."""
        if side is None:
            return copied()
        images = there.pop() if there else copied()
        now = torch.cuda.current_stream()
        now.wait_stream(side)
        images.record_stream(now)
        with torch.cuda.stream(side):
            there.append(copied())
        return images

    def step():
        optimizer.zero_grad(set_to_none=True)
        images = images_of_step()
        with precision:
            loss = forward(images, labels)
        loss.backward()
        optimizer.step()
        return loss

    result = timing.timed_steps(a, step, "images", a.batch)
    print(json.dumps(result | {"parameters": sum(q.numel() for q in model.parameters())}))


if __name__ == "__main__":
    main()
