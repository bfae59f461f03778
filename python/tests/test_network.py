"""Network files from Python."""

import pytest

import widefield
from widefield import netfile

LAYERS = {
    "name": "two", "dims": 2, "in": 3,
    "layers": [
        {"name": "a", "kind": "conv", "in": "image", "out": 5, "kernel": 3, "pad": 1, "bias": True},
        {"name": "b", "kind": "conv", "out": 2, "kernel": 1, "bias": True},
    ],
}  # fmt: skip


def test_parameters_of_a_network_file_by_hand(tmp_path):
    path = tmp_path / "net.yaml"
    netfile.write(path, LAYERS)
    network = widefield.Network.from_file(path)
    assert network.check((1, 3, 16, 20)) == (1, 2, 16, 20)
    # 3 x 3 x 3 channels x 5, and 5 biases; 1 x 1 x 5 x 2, and 2 biases.
    assert network.parameters == widefield.plan(path, (1, 3, 16, 20)).parameters == 3 * 9 * 5 + 5 + 5 * 2 + 2
    assert network.verify((1, 3, 16, 16), mesh="space=2x1")


def test_a_list_of_layers_is_a_network():
    network = widefield.Network("two", spec=LAYERS)
    assert network.check((2, 3, 8, 8)) == (2, 2, 8, 8)
    assert repr(network) == "Network('two', 2 layers)"


def test_networks_of_the_library_by_name():
    assert widefield.Network("unet", base=4, depth=2, classes=5).check((1, 3, 16, 16)) == (1, 5, 16, 16)
    with pytest.raises(widefield.UsageError, match="is all there is to save|are all there is to save"):
        widefield.Network("unet").save("nowhere")


def test_a_network_of_the_library_as_layers():
    unet = widefield.Network("unet", base=4, depth=2, classes=5)
    spec = unet.layers()
    copy = widefield.Network("mine", spec=spec, classes=5)
    assert copy.check((1, 3, 32, 48)) == (1, 5, 32, 48)
    unet.check((1, 3, 32, 48))
    assert copy.parameters == unet.parameters
    assert netfile.parse(netfile.text(spec)) == spec


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"kind": "convv"}, "did you mean 'conv'"),
        ({"in": "c"}, "'c'"),
        ({"kernle": 3}, "kernle"),
    ],
)
def test_a_wrong_layer_is_named_with_its_line(change, says):
    layers = [LAYERS["layers"][0], {**LAYERS["layers"][1], **change}]
    with pytest.raises(widefield.Error, match=says) as caught:
        widefield.Network("two", spec={**LAYERS, "layers": layers}).check((1, 3, 8, 8))
    assert "net.yaml:6" in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(widefield.UsageError, match="no such network file"):
        widefield.Network.from_file(tmp_path / "none.yaml")
