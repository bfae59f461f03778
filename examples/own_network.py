"""A PyTorch module of one's own, trained by Widefield on an image that is cut over two ranks, and back in PyTorch.

    pip install .[torch]
    python examples/own_network.py

The images are noise with bright discs; the network has to mark their pixels. The two ranks are threads of this process;
on a cluster the same script runs under mpirun or srun.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import widefield


class Residual(nn.Module):
    """Two convolutions and what they are added to."""

    def __init__(self, channels):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return F.silu(x + self.second(F.relu(self.norm(self.first(x)))))


class Own(nn.Module):
    """An encoder of three levels; its decoder takes sizes from the encoder, so that any image can be had."""

    def __init__(self, classes=2, base=12):
        super().__init__()
        self.stem = nn.Conv2d(1, base, 3, padding=1)
        self.levels = nn.ModuleList(Residual(base) for _ in range(3))
        self.merge = nn.ModuleList(nn.Conv2d(2 * base, base, 1) for _ in range(2))
        self.head = nn.Conv2d(base, classes, 1)

    def forward(self, x):
        x = self.stem(x)
        skips = []
        for level in self.levels:
            x = level(x)
            skips.append(x)
            x = F.max_pool2d(x, 2)
        x = skips.pop()
        for merge in self.merge:
            skip = skips.pop()
            x = F.interpolate(x, size=skip.shape[2:], mode="bilinear", align_corners=False)
            x = F.relu(merge(torch.cat([skip, x], 1)))
        return self.head(x)


def draw(samples, height, width, seed):
    """Noisy images and the pixels of their discs."""
    numbers = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    labels = np.zeros((samples, height, width), np.uint8)
    for one in labels:
        for _ in range(height * width // 600):
            cy, cx, r = numbers.integers(0, height), numbers.integers(0, width), numbers.integers(4, 9)
            one[(y - cy) ** 2 + (x - cx) ** 2 < r * r] = 1
    images = numbers.normal(size=(samples, 1, height, width)) + 1.5 * labels[:, None]
    return images.astype(np.float32), labels


def main():
    torch.manual_seed(1)
    module = Own()
    network = widefield.from_torch(module, torch.zeros(1, 1, 64, 64))
    settings = {"train": {"epochs": 12, "batch": 4, "lr": 0.005}, "mesh": "space=2x1"}
    with widefield.Session(network, settings) as session:
        show = print if session.rank == 0 else lambda *_: None
        show(network)
        show(session.plan((4, 1, 64, 64)))
        show("cut and whole:", session.verify((2, 1, 64, 64)))

        images, labels = draw(12, 64, 64, seed=1)
        data = widefield.Data.from_arrays(images, labels, raw=True)
        with widefield.Trainer(session, data) as trainer:
            for epoch in trainer.fit():
                show(f"epoch {epoch.epoch:2}  loss {epoch.loss:.4f}  mean IoU {epoch.metric:.3f}")
            trainer.to_torch(module)

            # A larger image of another shape, here and there.
            image, truth = draw(1, 150, 211, seed=2)
            ours = trainer.predictor().predict(image[0], probabilities=True, progress=False)
    with torch.no_grad():
        theirs = torch.softmax(module.eval()(torch.from_numpy(image)), 1)[0].numpy()
    right = (ours.labels == truth[0]).mean()
    apart = np.abs(ours.probabilities - theirs).max()
    show(f"{right:.1%} of the pixels are right; PyTorch's probabilities differ by at most {apart:.1e}")
    return 0 if right > 0.95 and apart < 1e-4 else 1


if __name__ == "__main__":
    raise SystemExit(main())
