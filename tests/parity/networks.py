"""Our networks, written with torch.nn. Attributes are named so that state_dict() has our names."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

CONV = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
UP = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
NORM = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
POOL = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVERAGE = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


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


SEED = 1  # of dropout, as the tests run their steps


def philox(seed, stream, count):
    """Words 0 .. count - 1 of Philox 4x32-10 with key `seed` and counter (index / 4, stream)."""
    index, low = np.arange((count + 3) // 4, dtype=np.uint64), np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    c = [index & low, index >> half] + [np.full_like(index, s) for s in (stream & 0xFFFFFFFF, stream >> 32)]
    key = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [b >> half ^ c[1] ^ np.uint64(key[0]), b & low, a >> half ^ c[3] ^ np.uint64(key[1]), a & low]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack(c, 1).ravel()[:count]


class Dropout(nn.Module):
    """With the mask of src/ops/dropout.h: a function of seed, step, layer and place (channels last)."""

    def __init__(self, name, p):
        super().__init__()
        self.stream, self.p, self.step = 0xCBF29CE484222325, p, 0
        for byte in name.encode():  # FNV-1a
            self.stream = (self.stream ^ byte) * 0x100000001B3 % 2**64

    def forward(self, x):
        z = self.step + 0x9E3779B97F4A7C15  # SplitMix64
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        self.step += 1
        place = (x.shape[0], *x.shape[2:], x.shape[1])
        words = philox(SEED ^ z ^ z >> 31, self.stream, x.numel()).reshape(place)
        keep = torch.from_numpy((words >> np.uint64(8)) * 2.0**-24 >= self.p)
        return x * keep.movedim(-1, 1) / (1 - self.p)


class FCN(nn.Module):
    """VGG-16 with scores at strides 32, 16, 8; `last` is the last up-convolution's factor."""

    def __init__(self, dims, channels, classes, base, depth, last=8):
        super().__init__()
        self.dims, self.last = dims, last
        for b, (convs, width) in enumerate(((2, 1), (2, 2), (3, 4), (3, 8), (3, 8))):
            for i in range(convs):
                setattr(self, f"conv{b + 1}_{i + 1}", CONV[dims](channels, width * base, 3, padding=1))
                channels = width * base
        self.fc6 = CONV[dims](channels, 64 * base, 7, padding=3)
        self.fc7 = CONV[dims](64 * base, 64 * base, 1)
        self.drop6, self.drop7 = Dropout("drop6", 0.5), Dropout("drop7", 0.5)
        self.score_fr = CONV[dims](64 * base, classes, 1)
        if last <= 16:
            self.score_pool4 = CONV[dims](8 * base, classes, 1)
            self.upscore2 = UP[dims](classes, classes, 4, stride=2, padding=1, bias=False)
        if last <= 8:
            self.score_pool3 = CONV[dims](4 * base, classes, 1)
            self.upscore_pool4 = UP[dims](classes, classes, 4, stride=2, padding=1, bias=False)
        self.final = "upscore" if last == 32 else f"upscore{last}"
        up = UP[dims](classes, classes, 2 * last, stride=last, padding=last // 2, bias=False)
        setattr(self, self.final, up)

    def forward(self, image):
        x, pooled = image, []
        for b, convs in enumerate((2, 2, 3, 3, 3)):
            for i in range(convs):
                x = F.relu(getattr(self, f"conv{b + 1}_{i + 1}")(x))
            x = POOL[self.dims](x, 2, ceil_mode=True)
            pooled.append(x)
        x = self.drop7(F.relu(self.fc7(self.drop6(F.relu(self.fc6(x))))))
        x = self.score_fr(x)
        if self.last <= 16:
            x = crop(self.upscore2(x), pooled[3]) + self.score_pool4(pooled[3])
        if self.last <= 8:
            x = crop(self.upscore_pool4(x), pooled[2]) + self.score_pool3(pooled[2])
        return crop(getattr(self, self.final)(x), image)


def crop(x, like):
    for axis in range(2, x.dim()):
        x = x.narrow(axis, 0, like.shape[axis])
    return x


class DenseLayer(nn.Module):
    def __init__(self, dims, channels, growth):
        super().__init__()
        self.norm1, self.norm2 = NORM[dims](channels), NORM[dims](4 * growth)
        self.conv1 = CONV[dims](channels, 4 * growth, 1, bias=False)
        self.conv2 = CONV[dims](4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, x):
        return self.conv2(F.relu(self.norm2(self.conv1(F.relu(self.norm1(x))))))


class DenseNet121(nn.Module):
    def __init__(self, dims, channels, classes, base, depth):
        super().__init__()
        self.dims, growth, f = dims, base // 2, nn.Module()
        self.features = f
        f.conv0 = CONV[dims](channels, base, 7, stride=2, padding=3, bias=False)
        f.norm0 = NORM[dims](base)
        channels = base
        for b, layers in enumerate((6, 12, 24, 16)):
            block = nn.Module()
            for i in range(layers):
                setattr(block, f"denselayer{i + 1}", DenseLayer(dims, channels, growth))
                channels += growth
            setattr(f, f"denseblock{b + 1}", block)
            if b < 3:
                down = nn.Module()
                down.norm = NORM[dims](channels)
                down.conv = CONV[dims](channels, channels // 2, 1, bias=False)
                setattr(f, f"transition{b + 1}", down)
                channels //= 2
        f.norm5 = NORM[dims](channels)
        self.classifier = nn.Linear(channels, classes)

    def forward(self, x):
        f = self.features
        x = POOL[self.dims](F.relu(f.norm0(f.conv0(x))), 3, stride=2, padding=1)
        for b in range(4):
            for layer in getattr(f, f"denseblock{b + 1}").children():
                x = torch.cat([x, layer(x)], 1)
            if b < 3:
                down = getattr(f, f"transition{b + 1}")
                x = AVERAGE[self.dims](down.conv(F.relu(down.norm(x))), 2)
        return self.classifier(F.relu(f.norm5(x)).flatten(2).mean(2))


class AlexNet(nn.Module):
    """torchvision's layers at any width; for CIFAR other steps and one linear layer."""

    def __init__(self, dims, channels, classes, base, depth, cifar=False):
        super().__init__()
        assert dims == 2
        layers = []
        pool = dict(kernel_size=2 if cifar else 3, stride=2)
        first = dict(kernel_size=11, stride=4, padding=5 if cifar else 2)
        middle, last = dict(kernel_size=5, padding=2), dict(kernel_size=3, padding=1)
        for width, conv, pooled in ((1, first, 1), (3, middle, 1), (6, last, 0), (4, last, 0), (4, last, 1)):
            layers += [nn.Conv2d(channels, width * base, **conv), nn.ReLU()]
            layers += [nn.MaxPool2d(**pool)] if pooled else []
            channels = width * base
        self.features = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(1 if cifar else 6)
        if cifar:
            self.classifier = nn.Linear(channels, classes)
            return
        hidden = 64 * base
        self.classifier = nn.Sequential(
            Dropout("classifier.0", 0.5), nn.Linear(channels * 36, hidden), nn.ReLU(),
            Dropout("classifier.3", 0.5), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, classes))

    def forward(self, x):
        return self.classifier(self.pool(self.features(x)).flatten(1))


def alexnet_cifar(*args):
    return AlexNet(*args, cifar=True)


def tile(x, tiles):
    """[N, C, H, W] -> [N * T, C, h, w]; zeros where the last subdomains reach past the end."""
    n, c, extent = x.shape[0], x.shape[1], [-(-e // t) for e, t in zip(x.shape[2:], tiles)]
    pad = [p for e, t, whole in zip(extent[::-1], tiles[::-1], x.shape[:1:-1]) for p in (0, e * t - whole)]
    x = F.pad(x, pad).reshape(n, c, tiles[0], extent[0], tiles[1], extent[1])
    return x.permute(0, 2, 4, 1, 3, 5).reshape(-1, c, *extent)


def untile(x, tiles, whole=None):
    c, extent = x.shape[1], x.shape[2:]
    x = x.reshape(-1, *tiles, c, *extent).permute(0, 3, 1, 4, 2, 5)
    x = x.reshape(x.shape[0], c, tiles[0] * extent[0], tiles[1] * extent[1])
    return x if whole is None else x[:, :, : whole[0], : whole[1]]


class Talk(nn.Module):
    """The last `channels` of all subdomains side by side, through convolutions, and back."""

    def __init__(self, tiles, channels, layers, kernel):
        super().__init__()
        self.tiles, self.channels, self.layers = tiles, channels, layers
        for i in range(layers):
            step = nn.Module()
            step.conv = nn.Conv2d(channels, channels, kernel, padding=kernel // 2)
            step.bn = nn.BatchNorm2d(channels)
            step.drop = Dropout(f"comm{i}.drop", 0.1)
            setattr(self, str(i), step)

    def forward(self, x):
        own, shared = x[:, : -self.channels], untile(x[:, -self.channels :], self.tiles)
        for i in range(self.layers):
            step = getattr(self, str(i))
            shared = step.drop(F.relu(step.bn(step.conv(shared))))
        return torch.cat([own, tile(shared, self.tiles)], 1)


class DDUNet(UNet):
    """A U-Net on subdomains; comm0, comm1, ... as attributes, for their names."""

    def __init__(self, dims, channels, classes, base, depth, tiles, comm, layers, kernel):
        super().__init__(dims, channels, classes, base, depth)
        self.tiles, talk = tiles, Talk(tiles, comm, layers, kernel)
        for i in range(layers):
            setattr(self, f"comm{i}", getattr(talk, str(i)))
        self.talk = [talk]  # in a list: no second name for its parameters

    def forward(self, x):
        whole, bottom = x.shape[2:], getattr(self, f"enc{self.depth}")
        hook = bottom.register_forward_hook(lambda _, __, y: self.talk[0](y))
        y = super().forward(tile(x, self.tiles))
        hook.remove()
        return untile(y, self.tiles, whole)


class DDUNetResNet18(nn.Module):
    """The trunk is torchvision's own layers, with fewer channels; frozen and in evaluation mode."""

    def __init__(self, dims, channels, classes, base, depth, tiles, comm, layers, kernel):
        from torchvision.models.resnet import BasicBlock, ResNet

        super().__init__()
        trunk = ResNet(BasicBlock, [2, 2, 2, 2])
        trunk.inplanes = base
        self.conv1 = nn.Conv2d(channels, base, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(base)
        for i in range(3):
            setattr(self, f"layer{i + 1}", trunk._make_layer(BasicBlock, base << i, 2, stride=2 if i else 1))
        self.frozen = [m for n, m in self.named_children()]
        for p in self.parameters():
            p.requires_grad_(False)
        self.bottom = Double(dims, 4 * base, (4 * base, 4 * base), bias=False)
        ups, outs, below = ((base + 1) // 2, base, 2 * base), (base, base, 2 * base), 4 * base
        for i in reversed(range(3)):
            setattr(self, f"up{i + 1}", nn.ConvTranspose2d(below, ups[i], 2, stride=2))
            skip = base << max(i - 1, 0)
            setattr(self, f"dec{i + 1}", Double(dims, ups[i] + skip, (outs[i], outs[i]), bias=False))
            below = outs[i]
        self.up0 = nn.ConvTranspose2d(below, ups[0], 2, stride=2)
        self.dec0 = Double(dims, ups[0], (ups[0], ups[0]), bias=False)
        self.out = nn.Conv2d(ups[0], classes, 1)
        self.tiles, talk = tiles, Talk(tiles, comm, layers, kernel)
        for i in range(layers):
            setattr(self, f"comm{i}", getattr(talk, str(i)))
        self.talk = [talk]

    @staticmethod
    def fit(up, like):
        missing = [b - a for a, b in zip(up.shape[2:], like.shape[2:])]  # below zero: crop the end
        return F.pad(up, [p for m in reversed(missing) for p in (max(m, 0) // 2, m - max(m, 0) // 2)])

    def forward(self, x):
        for module in self.frozen:
            module.eval()
        whole, tiles = x.shape[2:], tile(x, self.tiles)
        stage = [F.relu(self.bn1(self.conv1(tiles)))]
        x = F.max_pool2d(stage[0], 3, stride=2, padding=1)
        for i in range(3):
            x = getattr(self, f"layer{i + 1}")(x)
            stage.append(x)
        x = self.talk[0](self.bottom(x))
        for i in reversed(range(3)):
            up = self.fit(getattr(self, f"up{i + 1}")(x), stage[i])
            x = getattr(self, f"dec{i + 1}")(torch.cat([stage[i], up], 1))
        x = self.out(self.dec0(self.fit(self.up0(x), tiles)))
        return untile(x, self.tiles, whole)


NETWORKS = {"unet": UNet, "unet3d": UNet3D, "cnn1d": CNN, "cnn2d": CNN, "cnn3d": CNN}
NETWORKS |= {"ddunet": DDUNet, "ddunet_resnet18": DDUNetResNet18}
NETWORKS |= {"fcn8s": FCN, "densenet121": DenseNet121, "alexnet": AlexNet, "alexnet_cifar": alexnet_cifar}


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
