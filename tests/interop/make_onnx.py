#!/usr/bin/env python3
"""Writes tests/fixtures/onnx: small networks as PyTorch exports them, and what PyTorch computes with them in f64.

    python3 tests/interop/make_onnx.py          (needs torch, onnx, onnxscript, safetensors)

NAME.onnx beside NAME.safetensors, which holds `pred` and `grad.<name>` of one training step with cross entropy, on
the image and the labels of image() and labels() below; tests/cli/onnx.sh makes the same ones. Files that must be
refused are written, too.
"""
import copy
import math
import os
import warnings

import onnx
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper
from safetensors.torch import save_file
from torch import nn

warnings.filterwarnings("ignore")
HERE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "fixtures", "onnx")
SHAPE = (2, 3, 8, 12)


def image(shape=SHAPE):
    return torch.tensor([math.sin(0.37 * i + 0.001 * i * i) for i in range(math.prod(shape))]).reshape(shape)


def labels(shape, classes):
    return (torch.arange(math.prod(shape)) // 5 % classes).reshape(shape)


class UNet(nn.Module):
    """Extents like another result's, a transposed convolution, a reflecting border, groups."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.down = nn.Conv2d(4, 6, 3, stride=2, padding=1, padding_mode="reflect")
        self.norm2 = nn.BatchNorm2d(6, eps=1e-3, momentum=0.05)
        self.group = nn.Conv2d(6, 6, 3, padding=2, dilation=2, groups=2)
        self.deep = nn.Conv2d(6, 4, 2, stride=2)
        self.up = nn.ConvTranspose2d(4, 4, 2, stride=2)
        self.out = nn.Conv2d(14, 3, 1)

    def forward(self, x):
        a = F.relu(self.norm(self.first(x)))
        b = F.leaky_relu(self.norm2(self.down(a)), 0.1)
        c = self.up(F.elu(self.deep(self.group(b))))
        b = F.interpolate(b, size=a.shape[2:], mode="bilinear", align_corners=False)
        c = F.interpolate(c, size=a.shape[2:], mode="nearest")
        return self.out(torch.cat([a, b, c], 1))


class Mixed(nn.Module):
    """Norms, gates and activations in the forms that exporters give them."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.GroupNorm(2, 4)
        self.squeeze = nn.Conv2d(4, 2, 1)
        self.excite = nn.Conv2d(2, 4, 1)
        self.layer = nn.LayerNorm(4, eps=1e-6)
        self.wide = nn.Linear(4, 6)
        self.narrow = nn.Linear(6, 4)
        self.gamma = nn.Parameter(torch.full((4,), 0.5))
        self.plain = nn.InstanceNorm2d(4)
        self.slope = nn.PReLU(4)
        self.one = nn.PReLU()
        self.out = nn.Conv2d(4, 3, 3)

    def forward(self, x):
        x = F.silu(self.norm(self.first(x)))
        gate = torch.sigmoid(self.excite(F.relu(self.squeeze(F.adaptive_avg_pool2d(x, 1)))))
        x = x * gate
        y = self.narrow(F.gelu(self.wide(self.layer(x.permute(0, 2, 3, 1)))))
        x = x + (self.gamma * y).permute(0, 3, 1, 2)
        a, b = self.slope(self.plain(x)).chunk(2, 1)
        x = torch.cat([F.hardswish(a), self.one(b - 0.5 * a)], 1)
        x = F.avg_pool2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), 3, stride=1)
        return self.out(F.pad(F.softplus(x) / 2 + F.mish(x) - 0.25, (0, 2, 2, 0)))


class Classifier(nn.Module):
    """A vector behind a flattened image of fixed extents."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.hidden = nn.Linear(4 * 2 * 3, 10)
        self.drop = nn.Dropout(0.0)
        self.out = nn.Linear(10, 5, bias=False)

    def forward(self, x):
        x = F.avg_pool2d(F.relu6(3 * self.norm(self.conv(x))), 2)
        return self.out(self.drop(torch.tanh(self.hidden(x.flatten(1)))))


class Volume(nn.Module):
    """Three spatial axes."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv3d(1, 4, 3, padding=1)
        self.norm = nn.InstanceNorm3d(4, affine=True)
        self.out = nn.Conv3d(8, 2, 1)

    def forward(self, x):
        x = F.leaky_relu(self.norm(self.first(x)))
        y = F.interpolate(F.max_pool3d(x, 2), scale_factor=2, mode="trilinear", align_corners=True)
        return self.out(torch.cat([x, y], 1))


class Attention(nn.Module):
    """Products of all positions with all positions, over channels too; a reshape that mixes positions and channels
    (as smp's MAnet); weights of equal parts of the channels (split attention, selective kernels); copies of channels."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.queries, self.keys, self.values = nn.Conv2d(8, 3, 1), nn.Conv2d(8, 3, 1), nn.Conv2d(8, 8, 1)
        self.branches = nn.ModuleList([nn.Conv2d(8, 4, 3, padding=d, dilation=d) for d in (1, 2)])
        self.choice = nn.Conv2d(4, 8, 1)
        self.parts = nn.Conv2d(4, 8, 1)
        self.out = nn.Conv2d(8, 3, 1)

    def positions(self, x):
        q, k, v = (f(x).flatten(2) for f in (self.queries, self.keys, self.values))
        return (torch.softmax(q.transpose(1, 2) @ k, -1) @ v.transpose(1, 2)).transpose(1, 2).reshape(x.shape)

    def mixed(self, x):
        n, c, h, w = x.shape
        q, k, v = (f(x).flatten(2) for f in (self.queries, self.keys, self.values))
        scores = q.transpose(1, 2) @ k
        scores = torch.softmax(scores.view(n, -1), 1).view(n, h * w, h * w)
        return (scores @ v.transpose(1, 2)).reshape(n, c, h, w)

    def channels(self, x):
        flat = x.flatten(2)
        return (torch.softmax(flat @ flat.transpose(1, 2) / 10, -1) @ flat).reshape(x.shape)

    def selective(self, x):
        x = torch.stack([f(x) for f in self.branches], 1)
        weights = self.choice(x.sum(1).mean((2, 3), keepdim=True))
        weights = torch.softmax(weights.view(x.shape[0], 2, 4, 1, 1), 1)
        return (x * weights).sum(1)

    def split(self, x):
        n, _, h, w = x.shape
        x = self.parts(x).reshape(n, 2, 4, h, w)
        weights = torch.softmax(x.mean((3, 4), keepdim=True).reshape(n, 8, 1, 1).view(n, 2, 4, 1, 1), 1)
        return (x * weights).sum(1)

    def forward(self, image):
        x = F.silu(self.norm(self.first(image)))
        x = x + self.positions(x) + 3 * self.mixed(x) + self.channels(x)
        x = self.split(self.selective(x)).repeat(1, 2, 1, 1)
        return F.interpolate(self.out(x), size=image.shape[2:], mode="bilinear", align_corners=False)


class Gates(nn.Module):
    """Modules that are used twice, parameters of one number, a filter along the channels, sums and norms over positions,
    every second position, the larger of two, borders of other numbers than zero."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(12, 8, 3, padding=1)
        self.squeeze, self.excite = nn.Conv2d(8, 2, 1, bias=False), nn.Conv2d(2, 8, 1, bias=False)
        self.again = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.SiLU())
        self.along = nn.Conv1d(1, 1, 3, padding=1, bias=False)
        self.layer = nn.LayerNorm([8, 1, 1])
        # Exporters join the equal ones.
        self.scales = nn.ParameterDict({"gain": nn.Parameter(torch.tensor([0.7])), "gain2": nn.Parameter(torch.tensor([0.7])),
                                        "offset": nn.Parameter(torch.tensor(0.2)), "grn": nn.Parameter(torch.full((1, 8, 1, 1), 0.3))})
        self.out = nn.Conv2d(16, 6, 1)

    def forward(self, image):
        x = torch.cat([image[..., ::2, ::2], image[..., 1::2, ::2], image[..., ::2, 1::2], image[..., 1::2, 1::2]], 1)
        x = F.celu(self.first(x), 0.8)
        gate = self.excite(F.silu(self.squeeze(x.mean((2, 3), True)))) + self.excite(F.silu(self.squeeze(x.amax((2, 3), True))))
        row = self.along(x.mean((2, 3)).unsqueeze(1)).transpose(1, 2).unsqueeze(-1)
        x = x * torch.sigmoid(gate + row) + self.layer(x.sum((2, 3), True))
        x = x + self.scales["gain"] * self.again(x + self.scales["offset"]) + self.scales["gain2"] * self.again(2 * x)
        length = torch.norm(x, p=2, dim=(2, 3), keepdim=True)
        x = x + self.scales["grn"] * x * (length / (length.mean(1, keepdim=True) + 1e-6))
        low = F.max_pool2d(F.pad(x, (1, 0, 1, 0), value=float("-inf")), 2, stride=1)
        x = torch.max(low, F.avg_pool2d(F.pad(x, (0, 1, 0, 1), value=0.5), 2, stride=1)) + (x.abs() + 0.1) ** 1.5
        x = self.out(torch.cat([x, x.mean((2, 3), True).repeat(1, 1, *x.shape[2:])], 1))
        x = F.log_softmax(torch.min(x[:, :3], x[:, 3:]), 1)
        return F.interpolate(x, size=image.shape[2:])


class Odd(nn.Module):
    """As much as is missing behind a pooling that rounds down is added, and as much as is too much behind one that rounds
    up is cut off, as U-Nets do for any extents."""

    def __init__(self):
        super().__init__()
        self.first, self.deep, self.out = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 1), nn.Conv2d(12, 3, 1)

    def forward(self, x):
        x = torch.tanh(self.first(x))
        less, more = (F.interpolate(self.deep(F.max_pool2d(x, 2, ceil_mode=up)), scale_factor=2) for up in (False, True))
        dy, dx = x.shape[2] - less.shape[2], x.shape[3] - less.shape[3]
        less = F.pad(less, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
        return self.out(torch.cat([x, less, more[:, :, : x.shape[2], : x.shape[3]]], 1))


def make(kind):
    torch.manual_seed(4)
    net = kind()
    for m in net.modules():
        if getattr(m, "running_mean", None) is not None:
            m.running_mean.normal_(0, 0.1)
            m.running_var.uniform_(0.5, 1.5)
        if isinstance(m, (nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm)) and m.weight is not None:
            nn.init.uniform_(m.weight, 0.5, 1.5)
            nn.init.normal_(m.bias, 0, 0.2)
    return net.eval()


def export(net, x, path, fixed=False, **options):
    axes = {} if fixed else {0: "n", **{2 + i: f"s{i}" for i in range(x.dim() - 2)}}
    if options.get("dynamo"):
        shapes = ({i: torch.export.Dim.DYNAMIC for i in axes},) if axes else None
        torch.onnx.export(net, (x,), path, optimize=False, verbose=False, input_names=["image"], dynamic_shapes=shapes,
                          external_data=False, **options)
    else:
        torch.onnx.export(net, (x,), path, do_constant_folding=False, training=torch.onnx.TrainingMode.PRESERVE,
                          input_names=["image"], dynamic_axes={"image": axes} if axes else None, dynamo=False, **options)
    strip(path)


def strip(path):
    """Leaves out stack traces and shapes of results, and shortens names, which take most of a small file."""
    model = onnx.load(path)
    del model.graph.value_info[:]
    for node in model.graph.node:
        node.doc_string = ""
        del node.metadata_props[:]
    for value in list(model.graph.input) + list(model.graph.output) + list(model.graph.initializer):
        if hasattr(value, "metadata_props"):
            del value.metadata_props[:]
    del model.metadata_props[:]
    kept = {v.name for v in [*model.graph.input, *model.graph.output, *model.graph.initializer]}
    short = {}
    for node in model.graph.node:
        for names in (node.input, node.output):
            for i, name in enumerate(names):
                if name and name not in kept and ("." not in name or "/" in name):  # else it is the path of a weight
                    names[i] = short.setdefault(name, f"v{len(short)}")
    model.graph.doc_string = model.doc_string = ""
    onnx.save(model, path)


def golden(net, x, path):
    net = copy.deepcopy(net).double().train()
    pred = net(x.double())
    target = labels([pred.shape[0], *pred.shape[2:]], pred.shape[1])
    F.cross_entropy(pred, target).backward()
    save_file({"pred": pred.detach().float().contiguous(),
               **{"grad." + n: p.grad.float().contiguous() for n, p in net.named_parameters()}}, path)


def types():
    """Weights of other floating types, lists instead of bytes, an If whose condition is a constant."""
    def weight(name, data_type, shape, values):
        return helper.make_tensor(name, data_type, shape, values)
    ones = [0.5, -1.0, 2.0, 0.25]
    then = helper.make_graph([helper.make_node("Relu", ["b"], ["t"], "then")], "then", [],
                             [helper.make_tensor_value_info("t", TensorProto.FLOAT, None)])
    other = helper.make_graph([helper.make_node("Loop", ["b"], ["e"], "other")], "else", [],
                              [helper.make_tensor_value_info("e", TensorProto.FLOAT, None)])
    nodes = [helper.make_node("Cast", ["image"], ["x"], "cast", to=TensorProto.FLOAT16),
             helper.make_node("Conv", ["x", "half.weight"], ["a"], "half"),
             helper.make_node("Conv", ["a", "brain.weight", "brain.bias"], ["b"], "brain"),
             helper.make_node("Constant", [], ["yes"], "yes", value=helper.make_tensor("v", TensorProto.BOOL, [], [1])),
             helper.make_node("If", ["yes"], ["c"], "if", then_branch=then, else_branch=other),
             helper.make_node("Conv", ["c", "long.weight"], ["output"], "long")]
    graph = helper.make_graph(
        nodes, "types", [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 2, "h", "w"])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, ["n", 2, "h", "w"])],
        [weight("half.weight", TensorProto.FLOAT16, [2, 2, 1, 1], ones),
         weight("brain.weight", TensorProto.BFLOAT16, [2, 2, 1, 1], ones),
         weight("brain.bias", TensorProto.FLOAT, [2], [0.5, -0.5]),
         weight("long.weight", TensorProto.DOUBLE, [2, 2, 1, 1], ones)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), f"{HERE}/types.onnx")


def refused():
    """One node each that has no rule, or a lie."""
    def one(name, node, extra=(), outputs=1, opset=18):
        graph = helper.make_graph(
            [node], name, [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 3, "h", "w"])],
            [helper.make_tensor_value_info("output", TensorProto.FLOAT, None)], list(extra))
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]), f"{HERE}/refused-{name}.onnx")

    one("operator", helper.make_node("NonZero", ["image"], ["output"], "where"))
    body = helper.make_graph([], "body", [], [])
    one("loop", helper.make_node("Loop", ["", "", "image"], ["output"], "again", body=body))
    one("opset", helper.make_node("Relu", ["image"], ["output"], "relu"), opset=11)
    one("weights", helper.make_node("Conv", ["image", "w"], ["output"], "conv"),
        [helper.make_tensor("w", TensorProto.FLOAT, [4, 5, 3, 3], [0.0] * 180)])
    short = helper.make_tensor("w", TensorProto.FLOAT, [4, 3, 3, 3], [0.0] * 108)
    del short.float_data[50:]
    one("short", helper.make_node("Conv", ["image", "w"], ["output"], "conv"), [short])
    outside = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4, 3, 3, 3], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "../secret.bin"), ("offset", "0"), ("length", "432")):
        outside.external_data.add(key=key, value=value)
    one("outside", helper.make_node("Conv", ["image", "w"], ["output"], "conv"), [outside])


def main():
    os.makedirs(HERE, exist_ok=True)
    for name, kind, shape, options in [
            ("unet", UNet, SHAPE, {"opset_version": 17}),
            ("unet-dynamo", UNet, SHAPE, {"dynamo": True, "opset_version": 20}),
            ("mixed", Mixed, SHAPE, {"opset_version": 13}),
            ("mixed-dynamo", Mixed, SHAPE, {"dynamo": True, "opset_version": 21}),
            ("attention", Attention, SHAPE, {"opset_version": 17}),
            ("gates", Gates, SHAPE, {"opset_version": 17}),
            ("gates-dynamo", Gates, SHAPE, {"dynamo": True, "opset_version": 18}),
            ("odd", Odd, (2, 3, 9, 13), {"opset_version": 17}),
            ("odd-fixed", Odd, (2, 3, 9, 13), {"opset_version": 17, "fixed": True}),
            ("classifier", Classifier, SHAPE, {"opset_version": 17, "fixed": True}),
            ("volume", Volume, (1, 1, 4, 6, 8), {"opset_version": 18, "dynamo": True})]:
        net, x = make(kind), image(shape)
        export(net, x, f"{HERE}/{name}.onnx", **options)
        if not name.endswith(("-dynamo", "-fixed")):
            golden(net, x, f"{HERE}/{name}.safetensors")
    types()
    # The same numbers in a file beside it.
    model = onnx.load(f"{HERE}/volume.onnx")
    onnx.save(model, f"{HERE}/external.onnx", save_as_external_data=True, location="external.bin", size_threshold=0)
    refused()


if __name__ == "__main__":
    main()
