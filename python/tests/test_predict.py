import numpy as np
import pytest

import widefield


@pytest.fixture
def checkpoint(network, data, tmp_path):
    path = tmp_path / "net.safetensors"
    with widefield.Trainer(network, data, epochs=2, batch=2, lr=0.01) as trainer:
        trainer.fit(progress=False)
        trainer.save(path)
    return path


def test_windows_and_ranks_give_the_result_of_the_whole(checkpoint):
    image = np.random.default_rng(2).normal(size=(1, 90, 70)).astype(np.float32)
    whole = widefield.predict(checkpoint, image, probabilities=True)
    with widefield.Predictor(checkpoint, mesh="data=2") as predictor:
        assert predictor.channels == 2
        parts = predictor.predict(image, probabilities=True, window=(32, 32))
    assert np.allclose(whole.probabilities.sum(0), 1, atol=1e-5)
    assert np.array_equal(whole.labels, whole.probabilities.argmax(0))
    assert np.allclose(whole.probabilities, parts.probabilities, atol=1e-5)


def test_files_are_written(checkpoint, tmp_path):
    image = np.random.default_rng(2).normal(size=(1, 40, 50)).astype(np.float32)
    np.save(tmp_path / "image.npy", image)
    with widefield.Predictor(checkpoint) as predictor:
        predictor.predict_file(tmp_path / "image.npy", labels=tmp_path / "labels.npy", progress=False)
        labels = predictor.predict(image).labels
        with pytest.raises(widefield.UsageError, match="nothing is to be written"):
            predictor.predict_file(tmp_path / "image.npy")
    assert np.array_equal(np.load(tmp_path / "labels.npy").reshape(40, 50), labels)


class Foreign:
    """An array of another library: numpy's own export, under another type."""

    def __init__(self, array, device=1):
        self.array, self.device, self.asked = array, device, 0

    def __dlpack__(self, **keywords):
        self.asked += 1
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return (self.device, 0)


def test_dlpack_arrays_are_taken_without_a_copy(checkpoint):
    image = np.random.default_rng(2).normal(size=(1, 40, 50)).astype(np.float32)
    foreign = Foreign(image)
    taken = widefield.arrays.as_dtype(foreign, np.float32)
    assert np.shares_memory(taken, image) and foreign.asked == 1
    expected = widefield.predict(checkpoint, image).labels
    assert np.array_equal(widefield.predict(checkpoint, foreign).labels, expected)
    with pytest.raises(widefield.UsageError, match="host memory"):
        widefield.arrays.to_numpy(Foreign(image, device=2))


def test_what_is_no_image_or_checkpoint_is_refused(checkpoint, tmp_path):
    with pytest.raises(widefield.UsageError, match=r"\[C, H, W\]"):
        widefield.predict(checkpoint, np.zeros((8, 8), np.float32))
    with pytest.raises(widefield.Error, match="nothing.safetensors"):
        widefield.predict(tmp_path / "nothing.safetensors", np.zeros((1, 8, 8)))
    bad = tmp_path / "bad.safetensors"
    bad.write_bytes(checkpoint.read_bytes()[:1000])
    with pytest.raises(widefield.InputError, match="bad.safetensors"):
        widefield.predict(bad, np.zeros((1, 8, 8)))


def test_progress_is_drawn(checkpoint, capsys):
    with widefield.Predictor(checkpoint) as predictor:
        predictor.predict(np.zeros((1, 64, 64), np.float32), window=(16, 16), progress=True)
    assert "100%" in capsys.readouterr().err
