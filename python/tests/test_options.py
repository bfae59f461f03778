import pytest

import widefield
from widefield import options


def test_keys_are_those_of_the_config():
    keys = options.keys()
    assert len(keys) == len(set(keys)) > 80
    assert {"model.base", "train.lr", "mesh.space", "memory.limit"} <= set(keys)


def test_keywords_by_flag_section_and_underscore():
    assert options.resolve("mesh") == "mesh"
    assert options.resolve("threads") == "run.threads"
    assert options.resolve("threads", "data") == "data.threads"
    assert options.resolve("lr", "train") == "train.lr"
    assert options.resolve("train_weight_decay") == "train.weight_decay"
    assert options.resolve("model_comm_channels") == "model.comm.channels"


def test_values_as_the_config_writes_them():
    o = widefield.Options({"train": {"lr": 1e-4, "clip": None}}, data_crop=(64, 48), run_deterministic=True)
    assert o["train.lr"] == "0.0001"
    assert o["data.crop"] == "[64, 48]"
    assert o["run.deterministic"] == "true"
    assert o["model.weights"] is None


def test_a_file_does_not_replace_what_the_program_set(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text("model: { name: unet, base: 8, depth: 3 }\n")
    o = widefield.Options({"model.base": 16})
    o.read(path)
    assert (o["model.base"], o["model.depth"]) == ("16", "3")
    assert widefield.Options(path)["model.base"] == "8"


def test_copies_are_apart():
    o = widefield.Options({"model.base": 16, "data.crop": [64, 48], "mesh": "data=2,space=2x1"})
    copy = o.copy()
    assert copy["data.crop"] == o["data.crop"] == "[64, 48]"
    copy["model.base"] = 8
    assert (o["model.base"], copy["model.base"]) == ("16", "8")


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("model.bsae", 1, "did you mean 'model.base'"),
        ("train.lr", "fast", "train.lr"),
        ("run.device", "tpu", "one of cpu, reference, cuda"),
    ],
)
def test_a_wrong_setting_says_what_is_allowed(key, value, says):
    with pytest.raises(widefield.UsageError, match=says) as caught:
        widefield.Options({key: value})
    assert isinstance(caught.value, widefield.Error)


def test_a_key_that_is_not_there():
    with pytest.raises(KeyError):
        widefield.Options()["model.nothing"]
