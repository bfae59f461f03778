"""PyTorch modules as networks, and back. Expected numbers are PyTorch's, in float64."""

import copy
import json

import numpy as np
import pytest

torch = pytest.importorskip("torch", "2.6", reason="no PyTorch 2.6 here: tests of from_torch() are left out")
F = torch.nn.functional
nn = torch.nn

import widefield  # noqa: E402: behind PyTorch, whose libraries are then loaded already


class Pyramid(nn.Module):
    """A small U-Net of many operations: sizes of other tensors, shared weights, gates, in-place activations."""

    def __init__(self, classes=2):
        super().__init__()
        self.first = nn.Conv2d(1, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.down = nn.Sequential(nn.Conv2d(8, 12, 3, stride=2, padding=1), nn.GroupNorm(3, 12), nn.LeakyReLU(0.2, True))
        self.twice = nn.Conv2d(12, 12, 3, padding=1)
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(12, 12, 1), nn.Sigmoid())
        self.up = nn.ConvTranspose2d(12, 8, 2, stride=2)
        self.out = nn.Conv2d(16, classes, 1)

    def forward(self, x):
        a = F.relu(self.norm(self.first(x)), inplace=True)
        b = self.down(a)
        b = b + self.twice(F.silu(self.twice(b)))
        b = b * self.gate(b)
        u = self.up(b)
        dy, dx = a.shape[2] - u.shape[2], a.shape[3] - u.shape[3]
        u = F.pad(u, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
        return self.out(torch.cat([a, u], 1))


@pytest.fixture
def module():
    torch.manual_seed(7)
    module = Pyramid()
    with torch.no_grad():
        module.norm.running_mean.normal_()
        module.norm.running_var.uniform_(0.5, 2)
    return module


def numbers(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(11))


def test_names_and_weights_are_the_modules(module):
    network = widefield.from_torch(module, (1, 1, 48, 48))
    theirs = {name: tensor.numpy() for name, tensor in module.state_dict().items() if "num_batches" not in name}
    assert set(network.weights) == set(theirs)
    assert all(np.array_equal(network.weights[name], array) for name, array in theirs.items())
    kinds = [layer["kind"] for layer in network.spec["layers"]]
    assert kinds.count("conv") == 6 and "fit" in kinds
    assert [layer for layer in network.spec["layers"] if layer.get("weights") == "twice"]
    assert network.check((3, 1, 37, 45)) == (3, 2, 37, 45)


def test_predictions_are_the_modules_at_other_sizes(module, tmp_path):
    network = widefield.from_torch(module, (1, 1, 48, 48))
    images = numbers(2, 1, 37, 45).numpy()
    data = widefield.Data.from_arrays(images, np.zeros((2, 37, 45), np.uint8) + np.uint8([0, 1])[:, None, None], raw=True)
    with widefield.Trainer(network, data, data_validation=0, mesh="space=2x1") as trainer:
        found = trainer.predictor().predict(images[1], probabilities=True).probabilities
        trainer.save(tmp_path / "net.safetensors")
    expected = torch.softmax(copy.deepcopy(module).double().eval()(torch.from_numpy(images[1:]).double()), 1)[0]
    assert np.allclose(found, expected.detach().numpy(), atol=1e-5)
    # A checkpoint has the network in it.
    again = widefield.predict(tmp_path / "net.safetensors", torch.from_numpy(images[1]), probabilities=True)
    assert np.allclose(again.probabilities, expected.detach().numpy(), atol=1e-5)


@pytest.mark.parametrize("mesh", [None, "space=2x1", "data=2"])
def test_a_training_step_has_pytorchs_gradients(module, mesh):
    network = widefield.from_torch(module, (1, 1, 48, 48))
    images = numbers(2, 1, 36, 40).numpy()
    labels = np.random.default_rng(1).integers(0, 2, (2, 36, 40)).astype(np.int32)
    data = widefield.Data.from_arrays(images, labels, raw=True)
    options = {"batch": 2, "optimizer": "sgd", "lr": 0.1, "data_validation": 0, "mesh": mesh}
    with widefield.Trainer(network, data, **options) as trainer:
        step = trainer.step()
        gradients = {name: trainer.weights.gradient(name) for name, _ in module.named_parameters()}
        after = dict(trainer.weights)
    double = copy.deepcopy(module).double().train()
    loss = F.cross_entropy(double(torch.from_numpy(images).double()), torch.from_numpy(labels).long())
    loss.backward()
    assert step.loss == pytest.approx(loss.item(), rel=1e-5)
    for name, parameter in double.named_parameters():
        expected = parameter.grad.numpy()
        difference = np.linalg.norm(gradients[name] - expected) / (np.linalg.norm(expected) + 1e-6)
        assert difference < 1e-4, (name, difference)
    torch.optim.SGD(double.parameters(), 0.1).step()
    for name, tensor in double.state_dict().items():
        if "num_batches" not in name:
            assert np.allclose(after[name], tensor.numpy(), atol=1e-4), name


@pytest.mark.parametrize("training", [False, True])
def test_a_loss_of_ones_own_by_exec(module, training):
    """The sum of cubes, whose gradient is given to the backward pass."""
    network = widefield.from_torch(module, (1, 1, 48, 48))
    x = numbers(2, 1, 20, 28)
    with widefield.Session(network, mesh="space=2x1") as session:
        with widefield.Exec(session, x.shape, training=training, gradients=True) as function:
            y = function.forward(x)
            gradients = function.backward(3 * y**2)
            assert set(function.weights) == set(network.weights)
            assert all(function.weights[n].shape == a.shape for n, a in network.weights.items())
    double = copy.deepcopy(module).double().train(training)
    image = x.double().requires_grad_()
    expected = double(image)
    (expected**3).sum().backward()
    assert np.allclose(y, expected.detach().numpy(), atol=1e-5)
    wanted = {"image": image.grad, **{name: p.grad for name, p in double.named_parameters()}}
    assert set(wanted) == set(gradients)
    for name, tensor in wanted.items():
        difference = np.linalg.norm(gradients[name] - tensor.numpy()) / (np.linalg.norm(tensor.numpy()) + 1e-6)
        assert difference < 1e-4, (name, difference)


def test_exec_of_a_classifier():
    torch.manual_seed(1)
    module = nn.Sequential(nn.Conv2d(2, 5, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(5, 3))
    network = widefield.from_torch(module, (1, 2, 16, 16))
    x = numbers(4, 2, 16, 16)
    with widefield.Session(network) as session, widefield.Exec(session, x.shape, gradients=True) as function:
        y = function.forward(x)
        gradients = function.backward(np.ones(function.shape))
        with pytest.raises(widefield.UsageError, match="give"):
            function.forward(x[:2])
    found = module(x)
    found.sum().backward()
    assert np.allclose(y.reshape(4, 3), found.detach().numpy(), atol=1e-5)
    assert np.allclose(gradients["4.weight"], module[4].weight.grad.numpy(), atol=1e-4)
    assert np.allclose(gradients["0.weight"], module[0].weight.grad.numpy(), atol=1e-4)


def test_verify_of_a_module_on_a_mesh(module):
    network = widefield.from_torch(module, (1, 1, 48, 48))
    assert network.verify((2, 1, 40, 44), mesh="space=2x2")
    assert network.plan((2, 1, 40, 44), mesh="space=2x2").ranks == 4


def test_trained_weights_go_back(module, squares):
    images, labels = squares
    network = widefield.from_torch(module, (1, 1, 48, 48))
    data = widefield.Data.from_arrays(images, labels, raw=True)
    with widefield.Trainer(network, data, epochs=3, batch=2, lr=0.01, mesh="space=2x1") as trainer:
        trainer.fit(progress=False)
        ours = trainer.predictor().predict(images[0], probabilities=True).probabilities
        back = trainer.to_torch(copy.deepcopy(module)).eval()
        built = trainer.to_torch().eval()
    with torch.no_grad():
        image = torch.from_numpy(images[:1])
        theirs = torch.softmax(back(image), 1)[0].numpy()
        assert not np.allclose(theirs, torch.softmax(module.eval()(image), 1)[0].numpy(), atol=1e-2)
        assert np.allclose(torch.softmax(built(image), 1)[0].numpy(), theirs, atol=1e-5)
    assert np.allclose(ours, theirs, atol=1e-5)


def test_saved_networks_are_loaded(module, tmp_path):
    widefield.from_torch(module, (1, 1, 48, 48)).save(tmp_path / "net")
    network = widefield.Network.from_file(tmp_path / "net")
    assert set(network.weights) == set(widefield.from_torch(module, (1, 1, 48, 48)).weights)
    assert network.check((1, 1, 30, 30)) == (1, 2, 30, 30)


def test_a_network_of_the_library_in_pytorch(squares):
    """Trained here, and predicted by the module that is made of its layers."""
    images, labels = squares
    network = widefield.Network("unet", base=4, depth=2, classes=2, **{"in": 1})
    data = widefield.Data.from_arrays(images, labels, raw=True)
    with widefield.Trainer(network, data, epochs=1, batch=2) as trainer:
        trainer.fit(progress=False)
        ours = trainer.predictor().predict(images[0], probabilities=True).probabilities
        module = trainer.to_torch().eval()
    with torch.no_grad():
        theirs = torch.softmax(module(torch.from_numpy(images[:1])), 1)[0].numpy()
    assert np.allclose(ours, theirs, atol=1e-5)


def test_the_modes_of_the_module_stay(module):
    module.eval()
    module.down[1].train()
    before = [part.training for part in module.modules()]
    widefield.from_torch(module, (1, 1, 48, 48))
    assert [part.training for part in module.modules()] == before


def test_frozen_parts(module):
    for parameter in module.down.parameters():
        parameter.requires_grad = False
    module.train()
    module.norm.eval()
    layers = {layer["name"]: layer for layer in widefield.from_torch(module, (1, 1, 48, 48)).spec["layers"]}
    assert {name for name, layer in layers.items() if layer.get("frozen")} == {"down.0", "down.1", "norm"}


def same_as_torch(module, size, **options):
    """The library's result for random images against the module's, at the size of the example and another one."""
    module.eval()
    network = widefield.from_torch(module, size, **options)
    built = network.to_torch().double().eval()
    module.double()
    for more in (0, 16):
        x = numbers(2, size[1], *[n + more for n in size[2:]]).double()
        with torch.no_grad():
            expected, found = module(x), built(x)
        assert torch.allclose(found.reshape(expected.shape), expected, atol=1e-9)
    network.check(size)
    return network


class Call(nn.Module):
    """One function behind a convolution."""

    def __init__(self, function, channels=8, dims=2):
        super().__init__()
        self.conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dims - 1](3, channels, 3, padding=1)
        self.function = function

    def forward(self, x):
        y = self.function(self.conv(x))
        # A network file's prediction has the extents of the image, or one position.
        return y if y.dim() == 2 else F.interpolate(y, size=x.shape[2:])


FUNCTIONS = {
    "relu": F.relu, "elu": lambda x: F.elu(x, 0.7), "selu": F.selu, "gelu": F.gelu, "mish": F.mish,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "hard_swish": F.hardswish, "hard_sigmoid": F.hardsigmoid,
    "relu6": F.relu6, "softplus": lambda x: F.softplus(x, 2.0), "clip": lambda x: x.clamp(-0.5, 0.25),
    "softmax": lambda x: x.softmax(1), "scale": lambda x: 3 * x / 2, "shift": lambda x: 1.5 - x,
    "subtract": lambda x: x - F.avg_pool2d(x, 3, 1, 1), "same": lambda x: x[:, :4] * x[:, 4:],
    "chunk": lambda x: torch.cat([part * i for i, part in enumerate(x.chunk(3, 1), 1)], 1),
    "split": lambda x: sum(x.split([4, 4], 1)), "mean": lambda x: x * x.mean(1, keepdim=True),
    "crop": lambda x: x[:, :, 2:-3, 1:], "pool_ceil": lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True),
    "pool_count": lambda x: F.avg_pool2d(x, 3, 2, 1), "reflect": lambda x: F.pad(x, (1, 2, 3, 0), mode="reflect"),
    "nearest": lambda x: F.interpolate(x, scale_factor=2), "linear": lambda x: F.interpolate(
        F.max_pool2d(x, 2), size=x.shape[2:], mode="bilinear"), "corners": lambda x: F.interpolate(
        x, scale_factor=2, mode="bilinear", align_corners=True),
    "gate": lambda x: x * torch.sigmoid(x.mean((2, 3), keepdim=True)),
    "vector": lambda x: torch.flatten(F.adaptive_avg_pool2d(x, 1), 1), "repeat": lambda x: x.repeat(1, 2, 1, 1),
    "channels_last": lambda x: F.layer_norm(x.permute(0, 2, 3, 1), (8,)).permute(0, 3, 1, 2),
    "pad_channels": lambda x: F.pad(x, (0, 0, 0, 0, 1, 2)), "stack": lambda x: torch.stack([x, F.relu(x)]).sum(0),
    "narrow_like": lambda x: F.interpolate(x, scale_factor=3)[:, :, : x.shape[2], : x.shape[3]],
    "above": lambda x: x.clamp(min=-0.2), "below": lambda x: torch.clamp(x, max=0.3), "glu": lambda x: F.glu(x, 1),
    "celu": lambda x: F.celu(x, 0.6), "power": lambda x: (x.abs() + 0.1) ** 1.5 + x**3 + x.square() - (2 + x.abs()).pow(-2),
    "larger": lambda x: torch.max(x[:, :4], x[:, 4:]), "smaller": lambda x: torch.minimum(x[:, :4], x[:, 4:]),
    "log_softmax": lambda x: F.log_softmax(20 * x, 1), "divide": lambda x: x / (1 + x.abs()),
    "sums": lambda x: x * torch.sigmoid(x.sum((2, 3), keepdim=True) / 99) + x.sum(1, keepdim=True) + x.mean((1, 2, 3), True),
    "along": lambda x: x - x.mean(2, keepdim=True) + x.amax(3, keepdim=True), "normalise": lambda x: F.normalize(x, dim=1),
    "lengths": lambda x: x * torch.linalg.vector_norm(x, dim=(2, 3), keepdim=True),
    "rms": lambda x: x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + 1e-5), "deviation": lambda x: x / (x.std(1, keepdim=True) + 1),
    "by_hand": lambda x: (x - x.mean((2, 3), True)) / torch.sqrt(x.var((2, 3), keepdim=True, unbiased=False) + 1e-5),
    "strided": lambda x: torch.cat([x[..., ::2, ::2], x[..., 1::2, ::2], x[..., ::2, 1::2], x[..., 1::2, 1::2]], 1),
    "spread": lambda x: torch.cat([x, F.adaptive_avg_pool2d(x, 1).expand(-1, -1, *x.shape[2:])], 1),
    "spread_by_repeat": lambda x: torch.cat([x, F.adaptive_avg_pool2d(x, 1).repeat(1, 2, *x.shape[2:])], 1),
    "pad_with": lambda x: F.pad(x, (1, 2, 0, 1), value=0.75), "stack_mean": lambda x: torch.stack([x, 2 * x], 1).mean(1),
    "blocks": lambda x: x.reshape(x.shape[0], 2, 2, 2, *x.shape[2:]).permute(0, 1, 4, 2, 5, 3).reshape(
        x.shape[0], 2, 2 * x.shape[2], 2 * x.shape[3]),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_operations(name):
    same_as_torch(Call(FUNCTIONS[name]), (1, 3, 24, 32))


@pytest.mark.parametrize("dims", [1, 3])
def test_other_dimensions(dims):
    kinds = {1: (nn.Conv1d, nn.BatchNorm1d, nn.MaxPool1d, nn.ConvTranspose1d), 3: (nn.Conv3d, nn.BatchNorm3d, nn.MaxPool3d, nn.ConvTranspose3d)}
    conv, norm, pool, up = kinds[dims]
    module = nn.Sequential(conv(3, 4, 3, padding="same"), norm(4), nn.ReLU(), pool(2), conv(4, 6, 3, padding=1), up(6, 2, 2, 2))
    same_as_torch(module, (1, 3, *[16] * dims))


class Gates(nn.Module):
    """What has parameters of its own: one number, numbers of a buffer, a filter along the channels, statistics without
    weights, and modules that are used twice."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.4, 0.5, 0.6]).view(1, 3, 1, 1))
        self.register_buffer("deviation", torch.tensor([0.2, 0.3, 0.4]).view(1, 3, 1, 1))
        self.first, self.norm = nn.Conv2d(3, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6, affine=False)
        self.along = nn.Conv1d(1, 1, 3, padding=1, bias=False)
        self.squeeze, self.excite = nn.Conv2d(6, 2, 1, bias=False), nn.Conv2d(2, 6, 1, bias=False)
        self.again = nn.Sequential(nn.Conv2d(6, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6))
        self.gain, self.offset = nn.Parameter(torch.tensor([0.7])), nn.Parameter(torch.tensor(0.2))
        self.gamma, self.beta = nn.Parameter(torch.full((1, 6, 1, 1), 0.3)), nn.Parameter(torch.zeros(1, 6, 1, 1))
        self.out = nn.Conv2d(6, 2, 1)

    def forward(self, x):
        x = F.silu(self.norm(self.first((x - self.mean) / self.deviation)))
        row = F.adaptive_avg_pool2d(x, 1).squeeze(-1).transpose(-1, -2)
        x = x * torch.sigmoid(self.along(row).transpose(-1, -2).unsqueeze(-1)).expand_as(x)
        x = x + self.excite(F.silu(self.squeeze(x.mean((2, 3), True)))) + self.excite(F.silu(self.squeeze(x.amax((2, 3), True))))
        x = x + self.gain * self.again(x + self.offset) + self.again(2 * x)
        length = torch.norm(x, p=2, dim=(2, 3), keepdim=True)
        x = torch.addcmul(self.beta, self.gamma, x * (length / (length.mean(1, keepdim=True) + 1e-6))) + x
        return self.out(x)


@pytest.mark.parametrize("mesh", [None, "space=2x1", "data=2"])
def test_parameters_of_ones_own(mesh):
    """A step by the library, whose statistics are of the batch."""
    torch.manual_seed(5)
    module, x = Gates(), numbers(2, 3, 20, 28)
    network = widefield.from_torch(module, (1, 3, 32, 32))
    frozen = [layer["kind"] for layer in network.spec["layers"] if layer.get("frozen")]
    assert frozen == ["channel_shift", "channel_scale"]  # the buffers
    assert {"along.weight", "squeeze.weight", "again.1.running_mean"} <= set(network.weights)
    double = copy.deepcopy(module).double().train()
    expected = double(x.double())
    (expected**2).sum().backward()
    options = {} if mesh is None else {"mesh": mesh}
    with widefield.Session(network, **options) as session:
        with widefield.Exec(session, x.shape, training=True, gradients=True) as function:
            y = function.forward(x)
            gradients = function.backward(2 * y)
    assert np.allclose(y, expected.detach().numpy(), atol=1e-5)
    again = network.to_torch(copy.deepcopy(module))
    assert all(torch.equal(a, b) for a, b in zip(again.state_dict().values(), module.state_dict().values()))
    names = {network.torch_names.get(name, name): name for name in gradients}
    for name, parameter in double.named_parameters():
        found, wanted = gradients[names[name]].reshape(parameter.shape), parameter.grad.numpy()
        assert np.linalg.norm(found - wanted) <= 1e-4 * max(np.linalg.norm(wanted), 1e-2), name


def test_a_norm_without_a_bias():
    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.LayerNorm(4, bias=False)
            nn.init.uniform_(self.norm.weight, 0.5, 2)

        def forward(self, x):
            return self.norm(self.conv(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    network = same_as_torch(Norm(), (1, 3, 16, 16))
    assert set(network.weights) == {"conv.weight", "conv.bias", "norm.weight"}


def test_sizes_that_a_module_fixes():
    """Odd extents make PyTorch fix the padding: the network is tried at them."""

    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(6, 2, 3, padding=1)

        def forward(self, x):
            small = F.interpolate(F.max_pool2d(x, 2), scale_factor=2)
            if x.shape[2] % 2 == 1 and x.shape[3] % 2 == 1:
                small = F.pad(small, (0, 1, 0, 1), mode="replicate")
            return self.conv(torch.cat([x, small], 1))

    network = widefield.from_torch(Odd(), (2, 3, 17, 23))
    assert network.check((2, 3, 17, 23)) == (2, 2, 17, 23)


def test_an_in_place_change_is_seen_by_all_readers():
    class Changed(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 1)

        def forward(self, x):
            a = self.conv(x)
            b = F.relu_(a)
            return torch.cat([a, 2 * b], 1)

    same_as_torch(Changed(), (1, 3, 16, 16))


def test_stochastic_depth_and_drop_connect_become_layers():
    def torchvisions(x):
        noise = torch.empty(x.shape[0], 1, 1, 1, dtype=x.dtype).bernoulli_(0.75).div_(0.75)
        return x + x * noise

    def drop_connect(x):
        mask = torch.floor(0.75 + torch.rand([x.shape[0], 1, 1, 1], dtype=x.dtype))
        return x / 0.75 * mask

    for function in (torchvisions, drop_connect, lambda x: F.dropout(x, 0.25), lambda x: F.dropout2d(x, 0.25)):
        layers = widefield.from_torch(Call(function), (1, 3, 16, 16)).spec["layers"]
        drops = [layer for layer in layers if layer["kind"].startswith("dropout")]
        assert len(drops) == 1 and drops[0]["p"] == pytest.approx(0.25)
        assert not [layer for layer in layers if layer["kind"] == "scale"]


def test_heads_of_a_dict(module):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 2, 1), nn.Conv2d(4, 2, 1)

        def forward(self, x):
            y = F.relu(self.a(x))
            return {"aux": self.c(y), "out": self.b(y)}

    two = Two()
    alone = widefield.from_torch(two, (1, 1, 16, 16))
    assert alone.spec["heads"] == ["b"] and "c.weight" not in alone.weights
    both = widefield.from_torch(two, (1, 1, 16, 16), heads={"out": 1.0, "aux": 0.4})
    assert both.spec["heads"] == [{"layer": "b", "weight": 1.0}, {"layer": "c", "weight": 0.4}]
    assert both.verify((1, 1, 16, 16), mesh="space=2x1")
    with pytest.raises(widefield.UsageError, match="no 'other': it returns out, aux"):
        widefield.from_torch(two, (1, 1, 16, 16), heads={"other": 1})


@pytest.mark.parametrize(
    ("function", "operator", "says"),
    [
        (lambda x: torch.fft.rfft2(x).abs(), "fft_rfft2", "no rule"),
        (lambda x: x.sort(1)[0], "sort", "no rule"),
        (lambda x: x.roll(3, 2), "roll", "no rule"),
        (lambda x: torch.cat([x, x], 2), "cat", "not along the channels"),
        (lambda x: x.unflatten(1, (2, 4)).softmax(1).flatten(1, 2), "softmax", "parts of one in another order"),
        (lambda x: x[:, ::2], "slice", "along an axis of the image"),
        (lambda x: F.pad(x, (1, 1), value=float("-inf")), "pad", "inf"),
        (lambda x: F.max_pool2d(x, 3, dilation=2), "max_pool2d", "dilation"),
    ],
)
def test_what_has_no_rule_is_named(function, operator, says):
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Call(function)

        def forward(self, x):
            return self.inner(x)

    with pytest.raises(widefield.UnsupportedError, match=says) as caught:
        widefield.from_torch(Outer(), (1, 3, 16, 16))
    assert operator in caught.value.operator and caught.value.module == "inner"
    assert caught.value.node in str(caught.value) and "inner" in str(caught.value)


def test_control_flow_that_depends_on_numbers_is_refused():
    class Branch(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 2, 1)

        def forward(self, x):
            y = self.conv(x)
            return y if y.sum() > 0 else -y

    with pytest.raises(widefield.UnsupportedError, match="torch.export"):
        widefield.from_torch(Branch(), (1, 3, 16, 16))


def test_wrong_examples_and_modules(module):
    with pytest.raises(widefield.UsageError, match=r"\[N, C, \*spatial\]"):
        widefield.from_torch(module, torch.zeros(3, 3))
    network = widefield.from_torch(module, (1, 1, 48, 48))
    with pytest.raises(widefield.UsageError, match="the module has no 'first.weight'"):
        network.to_torch(nn.Conv2d(1, 1, 1))
    with pytest.raises(widefield.UsageError, match="shape"):
        network.to_torch(Pyramid(classes=3))


def test_tensors_are_taken_without_a_copy():
    x = torch.zeros(2, 3, requires_grad=True)
    taken = widefield.arrays.to_numpy(x)
    with torch.no_grad():
        x[1, 2] = 5
    assert taken[1, 2] == 5


def test_network_files_are_json_where_they_can_be(module):
    text = widefield.netfile.text(widefield.from_torch(module, (1, 1, 48, 48)).spec)
    lines = [line for line in text.splitlines() if line.startswith("  - {")]
    assert len(lines) == text.count("kind:") and all(json.loads(line.split("name: ")[1].split(",")[0]) for line in lines)
