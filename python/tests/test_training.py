import os
import re
import signal
import threading
import time

import numpy as np
import pytest

import widefield

OPTIONS = {"epochs": 3, "batch": 2, "lr": 0.01, "seed": 5}


def test_training_learns_and_reports(network, data):
    with widefield.Trainer(network, data, **{**OPTIONS, "epochs": 8}) as trainer:
        history = trainer.fit(progress=False)
        scores = trainer.evaluate()
    assert [e.epoch for e in history] == list(range(1, 9))
    assert history[-1].loss < 0.5 * history[0].loss
    assert history[-1].validation == pytest.approx(scores.loss)
    assert scores.mean_iou == pytest.approx(np.nanmean(scores.iou)) and scores.mean_iou > 0.7
    assert scores.accuracy > 0.9
    assert len(history.losses) == history[-1].step


def test_a_cut_image_gives_the_same_weights(network, data):
    found = []
    for mesh in (None, "space=2x1", "data=2"):
        with widefield.Trainer(network, data, mesh=mesh, **OPTIONS) as trainer:
            trainer.fit(progress=False)
            found.append(dict(trainer.weights))
    for name, array in found[0].items():
        for other in found[1:]:
            assert np.allclose(other[name], array, rtol=2e-3, atol=2e-4), name


def test_steps_and_epochs_are_the_same_run(network, data):
    with widefield.Trainer(network, data, **OPTIONS) as trainer:
        trainer.fit(progress=False)
        by_fit = dict(trainer.weights)
    with widefield.Trainer(network, data, **OPTIONS) as trainer:
        steps = 0
        while not trainer.step().ended:
            steps += 1
        assert all(np.array_equal(trainer.weights[name], array) for name, array in by_fit.items())
    with widefield.Trainer(network, data, **OPTIONS) as trainer:
        assert [trainer.epoch().epoch for _ in range(3)] == [1, 2, 3]
        assert trainer.epoch() is None
        assert len(trainer.history.losses) == steps
        assert all(np.array_equal(trainer.weights[name], array) for name, array in by_fit.items())


def test_a_step_of_sgd_by_hand(network, data):
    with widefield.Trainer(network, data, optimizer="sgd", batch=2, lr=0.1) as trainer:
        before = dict(trainer.weights)
        trainer.step()
        for name in ("out.weight", "enc0.conv0.weight"):
            name = name if name in before else next(n for n in before if n.endswith("weight"))
            moved = before[name] - 0.1 * trainer.weights.gradient(name)
            assert np.allclose(trainer.weights[name], moved, atol=1e-6)


def test_weights_are_set_and_read(network, data):
    with widefield.Trainer(network, data, mesh="space=2x1", **OPTIONS) as trainer:
        name = next(iter(trainer.weights))
        new = np.random.default_rng(0).normal(size=trainer.weights.shape(name))  # float64
        trainer.weights[name] = new
        assert np.allclose(trainer.weights[name], new, atol=1e-6)
        with pytest.raises(widefield.UsageError, match="has shape"):
            trainer.weights[name] = np.zeros(3)
        with pytest.raises(widefield.UsageError, match="no weight 'nothing'"):
            trainer.weights.update({"nothing": np.zeros(3)})
        with pytest.raises(KeyError):
            trainer.weights["nothing"]


def test_callbacks_see_all_and_end_it(network, data):
    seen = []

    class Watch(widefield.Callback):
        def on_step(self, trainer, step):
            seen.append(("step", step.step))

        def on_end(self, trainer, history):
            seen.append(("end", len(history)))

    with widefield.Trainer(network, data, **OPTIONS) as trainer:
        first = trainer.fit(callbacks=[Watch(), lambda t, e: e.epoch < 2], progress=False)
        assert len(first) == 2
        rest = trainer.fit(progress=False)
        assert [e.epoch for e in rest] == [3]
        assert len(trainer.history) == 3
    steps = [n for what, n in seen if what == "step"]
    assert steps == list(range(1, len(steps) + 1))
    assert seen[-1] == ("end", 2)


def test_a_checkpoint_goes_on(network, data, tmp_path):
    path = tmp_path / "half.safetensors"
    with widefield.Trainer(network, data, **OPTIONS) as trainer:
        trainer.fit(epochs=1, progress=False)
        trainer.save(path)
        trainer.fit(progress=False)
        whole = dict(trainer.weights)
    assert {"param.enc0.conv0.weight"} <= set(widefield.safetensors.load(path))
    with widefield.Trainer(network, data, **OPTIONS) as trainer:
        trainer.load(path)
        assert [e.epoch for e in trainer.fit(progress=False)] == [2, 3]
        assert all(np.array_equal(trainer.weights[name], array) for name, array in whole.items())


def test_a_run_folder_has_log_and_report(network, data, tmp_path):
    folder = tmp_path / "run"
    with widefield.Trainer(network, data, folder, **OPTIONS) as trainer:
        trainer.fit(progress=False)
    assert {"config.yaml", "log.jsonl", "report.html"} <= {path.name for path in folder.iterdir()}
    assert widefield.predict(folder, np.zeros((1, 20, 30), np.float32)).labels.shape == (20, 30)


def test_ctrl_c_comes_behind_a_step_and_fit_goes_on(network, data):
    class Interrupt(widefield.Callback):
        def on_step(self, trainer, step):
            if step.step == 3:
                os.kill(os.getpid(), signal.SIGINT)

    with widefield.Trainer(network, data, **{**OPTIONS, "epochs": 20}) as trainer:
        with pytest.raises(KeyboardInterrupt):
            trainer.fit(callbacks=[Interrupt()], progress=False)
        done = len(trainer.history.losses)
        assert 3 <= done <= 4
        trainer.fit(epochs=1, progress=False)
        assert len(trainer.history.losses) > done


def test_a_second_ctrl_c_stops_a_step_in_its_middle():
    images = np.random.default_rng(1).normal(size=(1, 1, 512, 512)).astype(np.float32)
    with widefield.Data.from_arrays(images, (images[:, 0] > 0).astype(np.uint8)) as data:
        options = {"epochs": 9, "data_validation": 0, "mesh": "space=2x1"}
        with widefield.Trainer(widefield.Network("unet", base=8), data, **options) as trainer:
            trainer.step()
            began = time.monotonic()
            trainer.step()
            whole = time.monotonic() - began

            def interrupt():
                for _ in range(2):
                    time.sleep(whole / 10)
                    os.kill(os.getpid(), signal.SIGINT)

            thread = threading.Thread(target=interrupt)
            with pytest.raises(KeyboardInterrupt):
                thread.start()
                trainer.step()
            thread.join()
            # A step that had gone to its end would have left the trainer whole.
            with pytest.raises(widefield.StoppedError, match="stopped on request"):
                trainer.step()


def test_training_in_another_thread(network, data):
    found = []

    def train():
        with widefield.Trainer(network, data, **OPTIONS) as trainer:
            found.append(trainer.fit(progress=False))

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert len(found[0]) == 3


def test_html_of_a_history_has_curves(network, data):
    with widefield.Trainer(network, data, **OPTIONS) as trainer:
        shown = trainer.fit(progress=False)._repr_html_()
    assert shown.count("<svg") == 2 and len(re.findall("<tr>", shown)) == 4
    assert re.search(r'<polyline points="[0-9., ]{20,}"', shown)


def test_data_that_does_not_match():
    images, labels = np.zeros((2, 1, 16, 16), np.float32), np.zeros((2, 16, 15), np.uint8)
    with pytest.raises(widefield.UsageError, match=r"sample 0: labels of shape \(16, 15\)"):
        widefield.Data.from_arrays(images, labels)
    with pytest.raises(widefield.InputError, match="float"):
        widefield.Data.from_arrays(images, np.zeros((2, 16, 16)))
    with pytest.raises(widefield.UsageError, match=r"\[N, C, H, W\]"):
        widefield.Data.from_arrays(images[0], labels[0])
    with pytest.raises(widefield.Error, match="no/such"):
        widefield.Data("no/such/folder")


def test_images_of_different_sizes_and_labels_of_images():
    draw = np.random.default_rng(1)
    sizes = [(20, 24), (31, 17), (24, 24), (16, 40)]
    images = [draw.normal(size=(1, *s)).astype(np.float32) for s in sizes]
    with widefield.Data.from_arrays(images, [(i[0] > 0).astype(np.int64) for i in images]) as data:
        assert (data.samples, data.classes, data.per_image) == (4, 2, False)
        options = {**OPTIONS, "epochs": 1, "data_crop": (16, 16)}
        with widefield.Trainer(widefield.Network("unet", base=4, depth=1), data, **options) as trainer:
            assert np.isfinite(trainer.fit(progress=False)[0].loss)
    block = draw.normal(size=(6, 1, 28, 28)).astype(np.float32)
    with widefield.Data.from_arrays(block, [0, 1, 2, 0, 1, 2]) as data:
        assert data.per_image and data.classes == 3
        with widefield.Trainer("cnn2d", data, epochs=1, batch=2) as trainer:
            trainer.fit(progress=False)
            found = trainer.predictor().predict(block[0], probabilities=True)
    assert found.labels.shape == () and found.probabilities.shape == (3,)
    assert found.probabilities.sum() == pytest.approx(1, abs=1e-5)
    assert int(found.labels) == int(np.argmax(found.probabilities))
