"""Products that a training step of MinkUNet has on given voxels: pairs of rows that kernels join, times channels."""

import itertools

import numpy as np

BLOCKS = {"14": (1,) * 8, "18": (2,) * 8, "34": (2, 3, 4, 6, 2, 2, 2, 2)}
MODELS = {"14": "minkunet14", "18": "minkunet18", "34": "minkunet34c"}
PLANES = (32, 64, 128, 256, 256, 128, 96, 96)
CHANNELS, CLASSES = 3, 4


def packed(rows):
    rows = rows.astype(np.int64) + (1 << 19)
    return (rows[:, 0] << 42) | (rows[:, 1] << 21) | rows[:, 2]


def neighbours(rows, kernel):
    """Pairs of rows that a kernel joins."""
    there = np.sort(packed(rows))
    reach = range(-(kernel // 2), kernel // 2 + 1)
    count = 0
    for offset in itertools.product(reach, repeat=3):
        wanted = packed(rows + np.array(offset))
        at = np.minimum(np.searchsorted(there, wanted), len(there) - 1)
        count += int((there[at] == wanted).sum())
    return count


def gflop(rows, net):
    """Of the products that are there, in a training step: y, the gradient of x (but of the stem's), of the weight."""
    levels = [rows]
    for _ in range(4):
        levels.append(np.unique(levels[-1] // 2, axis=0))
    pairs = [neighbours(level, 3) for level in levels]
    points = [len(level) for level in levels]
    blocks = BLOCKS[net]
    total = 4 * neighbours(rows, 5) * CHANNELS * 32

    def add_blocks(level, channels, out, count):
        flops = 6 * points[level] * channels * out if channels != out else 0
        for i in range(count):
            flops += 6 * pairs[level] * ((channels if i == 0 else out) + out) * out
        return flops

    channels, skips = 32, [32]
    for i in range(4):
        total += 6 * points[i] * channels * channels
        total += add_blocks(i + 1, channels, PLANES[i], blocks[i])
        channels = PLANES[i]
        skips.append(channels)
    for i in range(4):
        out = PLANES[4 + i]
        total += 6 * points[3 - i] * channels * out
        total += add_blocks(3 - i, out + skips[3 - i], out, blocks[4 + i])
        channels = out
    return (total + 6 * points[0] * channels * CLASSES) / 1e9
