"""Our networks, written with torch.nn. Attributes are named so that state_dict() has our names."""

import torch
import torch.nn.functional as F
from torch import nn

CONV = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
UP = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
NORM = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
POOL = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}


class Double(nn.Module):
    """Two times convolution 3, batch norm, ReLU."""

    def __init__(self, dims, channels, outs, bias):
        super().__init__()
        for i, out in enumerate(outs):
            setattr(self, f"conv{i}", CONV[dims](channels, out, 3, padding=1, bias=bias))
            setattr(self, f"bn{i}", NORM[dims](out))
            channels = out

    def forward(self, x):
        return F.relu(self.bn1(self.conv1(F.relu(self.bn0(self.conv0(x))))))


class Net(nn.Module):
    """What the two U-Nets share: down, across, up with [skip, upsampled] side by side."""

    def __init__(self, dims, depth):
        super().__init__()
        self.dims, self.depth = dims, depth

    def forward(self, x):
        skips = []
        for i in range(self.depth):
            x = getattr(self, f"enc{i}")(x)
            skips.append(x)
            x = POOL[self.dims](x, 2)
        x = getattr(self, f"enc{self.depth}")(x)
        for i in reversed(range(self.depth)):
            up = getattr(self, f"up{i}")(x)
            pad = []  # zeros where the skip is longer, the smaller half in front; last axis first
            for axis in reversed(range(2, up.dim())):
                missing = skips[i].shape[axis] - up.shape[axis]
                pad += [missing // 2, missing - missing // 2]
            x = getattr(self, f"dec{i}")(torch.cat([skips[i], F.pad(up, pad)], 1))
        return self.out(x)


class UNet(Net):
    def __init__(self, dims, channels, classes, base, depth):
        super().__init__(dims, depth)
        width = [base << i for i in range(depth + 1)]
        for i, w in enumerate(width):
            setattr(self, f"enc{i}", Double(dims, channels, (w, w), bias=False))
            channels = w
        for i in reversed(range(depth)):
            setattr(self, f"up{i}", UP[dims](width[i + 1], width[i], 2, stride=2))
            setattr(self, f"dec{i}", Double(dims, 2 * width[i], (width[i], width[i]), bias=False))
        self.out = CONV[dims](base, classes, 1)


class UNet3D(Net):
    """The original one: channels double inside a level, the up-convolution keeps them."""

    def __init__(self, dims, channels, classes, base, depth):
        super().__init__(dims, depth)
        for i in range(depth + 1):
            setattr(self, f"enc{i}", Double(dims, channels, (base << i, base << i + 1), bias=True))
            channels = base << i + 1
        for i in reversed(range(depth)):
            below, skip = base << i + 2, base << i + 1
            setattr(self, f"up{i}", UP[dims](below, below, 2, stride=2, bias=False))
            setattr(self, f"dec{i}", Double(dims, below + skip, (skip, skip), bias=True))
        self.out = CONV[dims](2 * base, classes, 1)


class CNN(nn.Module):
    def __init__(self, dims, channels, classes, base, depth=0):
        super().__init__()
        self.dims = dims
        for i, out in enumerate((base, base, 2 * base, 2 * base, 4 * base)):
            setattr(self, f"conv{i}", CONV[dims](channels, out, 3, padding=1))
            channels = out
        self.fc = nn.Linear(channels, classes)

    def forward(self, x):
        for i in range(5):
            x = F.relu(getattr(self, f"conv{i}")(x))
            if i in (1, 3):
                x = POOL[self.dims](x, 2)
        return self.fc(x.flatten(2).mean(2))


NETWORKS = {"unet": UNet, "unet3d": UNet3D, "cnn1d": CNN, "cnn2d": CNN, "cnn3d": CNN}


def dice(logits, target):
    """1 - mean over classes of (2 I + 1) / (P + T + 1), sums over the whole batch."""
    p = logits.softmax(1).transpose(0, 1).flatten(1)
    t = F.one_hot(target.flatten(), logits.shape[1]).T.to(p.dtype)
    return 1 - ((2 * (p * t).sum(1) + 1) / (p.sum(1) + t.sum(1) + 1)).mean()


LOSSES = {
    "ce": F.cross_entropy,
    "bce": F.binary_cross_entropy_with_logits,
    "mse": F.mse_loss,
    "dice": dice,
}


def loss_of(names, logits, target):
    return sum(LOSSES[name](logits, target) for name in names.split("+"))


def optimizer_of(name, parameters, lr):
    if name == "adam":
        return torch.optim.Adam(parameters, lr)
    return torch.optim.SGD(parameters, lr, momentum=0.9 if name == "momentum" else 0.0)
