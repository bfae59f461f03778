"""Small data that tests share."""

import numpy as np
import pytest

import widefield


@pytest.fixture
def squares():
    """Images with bright squares in noise, and the squares' pixels."""
    draw = np.random.default_rng(3)
    labels = np.zeros((8, 32, 32), np.uint8)
    for sample in labels:
        for _ in range(3):
            y, x = draw.integers(0, 24, 2)
            sample[y : y + 8, x : x + 8] = 1
    images = draw.normal(size=(8, 1, 32, 32)) + 3.0 * labels[:, None]
    return images.astype(np.float32), labels


@pytest.fixture
def data(squares):
    with widefield.Data.from_arrays(*squares) as data:
        yield data


@pytest.fixture
def network():
    return widefield.Network("unet", base=4, depth=2)
