#!/usr/bin/env python3
"""Sparse operators and networks by MinkowskiEngine 0.5.4, as files to compare ours with.

    make_sparse.py FOLDER [CASE ...]     writes FOLDER/<case>.safetensors

MinkowskiEngine builds for the CPU against Debian's PyTorch 1.13 (python3-torch, libopenblas-dev, pybind11-dev;
eight minutes on two cores), and needs numpy and safetensors beside it:
    MAX_JOBS=2 /usr/bin/python3 -m pip install --no-deps --no-build-isolation --break-system-packages --target DIR \\
        MinkowskiEngine --install-option=--cpu_only --install-option=--blas=openblas
    PYTHONPATH=DIR /usr/bin/python3 tests/parity/make_sparse.py tests/parity/sparse

All arithmetic is in double precision and rounded to f32 once at the end; inputs are exact in f32. Rows of
coordinates are (batch, spatial axes), in canonical order: by batch, then lexicographically, the first spatial
axis first. A file of an operator holds

    coords, features            the input; `coords.b`, `features.b` a second one
    target                      coordinates or points (f32) on which the output is asked for
    weight, bias                of a convolution [K, Cin, Cout], kernel index with the first spatial axis fastest;
                                of a norm [C]
    mask                        of pruning, one number a row
    out.coords, out             the result in canonical order
    grad.out                    the gradient that is fed back
    grad.features, grad.features.b, grad.weight, grad.bias       what comes out of it
    labels, out.labels          of quantisation

and in its metadata `op` and its attributes as text: `dims`, `kernel`, `stride`, `dilation` (numbers per axis joined
by x), `shape` cube or cross, `tensor_stride` of the input, `batches`, `by` who computed it: MinkowskiEngine, or
PyTorch or NumPy where MinkowskiEngine is wrong. That is: coordinates beyond 2^24; a transposed convolution that
picks up the map of another tensor; quantisation by maximum, which mixes up rows; labels that conflict, of which it
keeps the first. Its cross kernels on the CPU read the first offsets of the cube, so a cross is computed here as a
cube with weights of zero. Its unpooling sums what meets at a point, whatever its documentation says.

A file of a network (`op` is network) holds coords, features, target (labels, -1 to be ignored) and what one training
step makes of them: loss, pred, and for each weight `grad.<name>`: its L2 norm, then the elements whose numbers are in
`pick.<name>`; `state.<name>` likewise for the running statistics after the step. `names` in the metadata lists the weights
in the order of the layers, with shapes. Weights are not stored: element i of a tensor is a function of its name,
formula() below.
"""

import collections
import collections.abc
import itertools
import math
import pathlib
import sys
import zlib

collections.Sequence = collections.abc.Sequence  # MinkowskiEngine 0.5.4 was written for Python 3.9
import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import save_file
from torch import nn
import MinkowskiEngine as ME

CASES = {}


def case(**attributes):
    def keep(make):
        CASES[make.__name__] = (make, attributes)
        return make
    return keep


def uniform(name, shape, low=-1.0, high=1.0):
    """Numbers that depend on the name only, exact in f32."""
    random = np.random.Generator(np.random.PCG64(zlib.crc32(name.encode())))
    return (low + (high - low) * random.random(shape)).astype(np.float32)


def canonical(coords):
    """The order of the rows: by batch, then by the first spatial axis, and so on."""
    return np.lexsort(np.asarray(coords).T[::-1])


def cloud(name, count, dims, batches=2, low=-4, high=4):
    """Distinct rows in a box around zero, in canonical order; every batch index has some."""
    rows = np.concatenate([np.floor(uniform(f"{name}/batch", (count, 1), 0, batches)),
                           np.floor(uniform(f"{name}/coords", (count, dims), low, high))], 1).astype(np.int32)
    rows[:batches, 0] = np.arange(batches)
    return np.unique(rows, axis=0)


def text(value):
    return "x".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)


class File:
    """What a case stores, under the names above."""

    def __init__(self, name, attributes):
        self.name, self.out, self.leaves = name, {}, {}
        self.metadata = {"by": "MinkowskiEngine"} | {k: text(v) for k, v in attributes.items()}

    def put(self, name, array):
        if isinstance(array, torch.Tensor):
            array = array.detach().numpy()
        array = np.ascontiguousarray(array)
        self.out[name] = array if array.dtype == np.int32 else array.astype(np.float32)

    def leaf(self, name, array):
        """An input whose gradient is stored."""
        self.put(name, array)
        self.leaves[name] = torch.from_numpy(self.out[name]).double().requires_grad_(True)
        return self.leaves[name]

    def features(self, rows, channels, suffix=""):
        return self.leaf(f"features{suffix}", uniform(f"{self.name}/features{suffix}", (rows, channels)))

    def sparse(self, coords, channels, suffix="", tensor_stride=1, manager=None):
        self.put(f"coords{suffix}", coords)
        return ME.SparseTensor(self.features(len(coords), channels, suffix), torch.from_numpy(coords),
                               tensor_stride=tensor_stride, coordinate_manager=manager)

    def weights(self, layer, shape=None):
        """The layer's weights are replaced by ours; `shape` is how they are stored."""
        for name, p in list(layer.named_parameters()):
            last = {"kernel": "weight"}.get(name.rsplit(".", 1)[-1], name.rsplit(".", 1)[-1])
            low, high = (0.5, 1.5) if last == "weight" and p.dim() == 1 else (-0.5, 0.5)
            stored = shape if last == "weight" and shape else (p.numel(),) if last == "bias" else tuple(p.shape)
            value = self.leaf(last, uniform(f"{self.name}/{last}", stored, low, high))
            holder = layer
            for part in name.split(".")[:-1]:
                holder = getattr(holder, part)
            del holder._parameters[name.rsplit(".", 1)[-1]]
            setattr(holder, name.rsplit(".", 1)[-1], value.reshape(p.shape))
        return layer

    def finish(self, features, coords=None):
        """Stores the output and runs it backwards."""
        if coords is not None:
            order = canonical(coords)
            self.put("out.coords", np.asarray(coords)[order].astype(np.int32))
            features = features[torch.from_numpy(order)]
        self.put("out", features)
        if self.leaves:
            self.put("grad.out", uniform(f"{self.name}/grad.out", tuple(features.shape)))
            (features * torch.from_numpy(self.out["grad.out"]).double()).sum().backward()
            for name, leaf in self.leaves.items():
                self.put(f"grad.{name}", leaf.grad)

    def finish_sparse(self, x):
        self.metadata.setdefault("out_stride", text(x.tensor_stride))
        self.finish(x.F, x.C.numpy())


# --- convolutions -----------------------------------------------------------------------------------------------

def cross_in_cube(k, dims):
    """Kernel indices of a cross (the centre, then for each axis +1 to +r and -r to -1) in the cube around it."""
    r, centre = k // 2, (k**dims - 1) // 2
    return [centre] + [centre + d * k**axis for axis in range(dims) for d in (*range(1, r + 1), *range(-r, 0))]


def convolution(file, a, coords=None, target=None):
    dims, cin, cout = a["dims"], a.get("cin", 3), a.get("cout", 4)
    coords = cloud(file.name, a.get("count", 60), dims) if coords is None else coords
    ts = a.get("tensor_stride", 1)
    x = file.sparse(coords * ([1] + [ts] * dims), cin, tensor_stride=ts) if ts > 1 else file.sparse(coords, cin)
    layer = ME.MinkowskiConvolution(cin, cout, kernel_size=a["kernel"], stride=a.get("stride", 1),
                                    dilation=a.get("dilation", 1), bias=a.get("bias", False), dimension=dims)
    volume = layer.kernel_generator.kernel_volume
    if a.get("shape") == "cross":
        places = cross_in_cube(a["kernel"], dims)
        w = file.leaf("weight", uniform(f"{file.name}/weight", (len(places), cin, cout), -0.5, 0.5))
        del layer._parameters["kernel"]
        layer.kernel = torch.zeros(volume, cin, cout).double().index_put((torch.tensor(places),), w)
    else:
        file.weights(layer, (volume, cin, cout))
    if target is None:
        file.finish_sparse(layer(x))
    else:
        file.put("target", target)
        file.finish_sparse(layer(x, torch.from_numpy(target)))


def conv_case(name, **attributes):
    attributes = dict(op="conv", dims=3, stride=1, dilation=1, shape="cube", tensor_stride=1) | attributes
    def make(file):
        convolution(file, attributes)
    make.__name__ = name
    case(**{k: v for k, v in attributes.items() if k not in ("count", "cin", "cout")})(make)


conv_case("conv_k3", kernel=3)
conv_case("conv_k2", kernel=2)
conv_case("conv_k5", kernel=5)
conv_case("conv_k1", kernel=1)
conv_case("conv_k1_s2", kernel=1, stride=2)
conv_case("conv_k3_bias", kernel=3, bias=True)
conv_case("conv_k2_s2", kernel=2, stride=2)
conv_case("conv_k3_s2", kernel=3, stride=2)
conv_case("conv_k3_s3", kernel=3, stride=3)
conv_case("conv_k3_d2", kernel=3, dilation=2)
conv_case("conv_k2_d2_s2", kernel=2, dilation=2, stride=2)
conv_case("conv_k3_on_stride2", kernel=3, tensor_stride=2)
conv_case("conv_k2_s2_on_stride2", kernel=2, stride=2, tensor_stride=2)
conv_case("conv_k3x1x5", kernel=(3, 1, 5))
conv_case("conv_k3x2x1_s1x2x3", kernel=(3, 2, 1), stride=(1, 2, 3))
conv_case("conv_cross3", kernel=3, shape="cross")
conv_case("conv_cross5", kernel=5, shape="cross")
conv_case("conv_2d_k3", dims=2, kernel=3, count=40)
conv_case("conv_2d_k3_s2", dims=2, kernel=3, stride=2, count=40)
conv_case("conv_2d_cross3", dims=2, kernel=3, shape="cross", count=40)
conv_case("conv_4d_k3", dims=4, kernel=3, count=200, cin=2, cout=3)
conv_case("conv_4d_k2_s2", dims=4, kernel=2, stride=2, count=120)
conv_case("conv_4d_cross3", dims=4, kernel=3, shape="cross", count=120)


@case(op="conv", dims=3, kernel=3, stride=1, dilation=1, shape="cube", tensor_stride=1, coordinates="given")
def conv_target(file):
    convolution(file, dict(dims=3, kernel=3), target=cloud(f"{file.name}/target", 40, 3, low=-5, high=5))


def transposed(file, kernel, layer_type, coords, coarse=None):
    """Upwards from the coordinates that a stride of 2 makes of `coords`."""
    fine = ME.SparseTensor(torch.zeros(len(coords), 1).double(), torch.from_numpy(coords))
    down = ME.MinkowskiConvolution(1, 1, kernel_size=kernel, stride=2, dimension=3).double()(fine)
    order = canonical(down.C.numpy())
    file.put("coords", down.C.numpy()[order])
    rows = np.empty_like(order)
    rows[order] = np.arange(len(order))
    x = ME.SparseTensor(file.features(len(order), 4)[torch.from_numpy(rows)], coordinate_map_key=down.coordinate_map_key,
                        coordinate_manager=down.coordinate_manager)
    layer = layer_type(4, 3, kernel_size=kernel, stride=2, dimension=3)
    return file.weights(layer, (kernel**3, 4, 3))(x)


def transposed_case(name, kernel, generated):
    kind = ME.MinkowskiGenerativeConvolutionTranspose if generated else ME.MinkowskiConvolutionTranspose
    def make(file):
        coords = cloud(file.name, 24 if generated else 60, 3)
        out = transposed(file, kernel, kind, coords)
        if not generated:
            file.put("target", coords)
        file.finish_sparse(out)
    make.__name__ = name
    case(op="convt", dims=3, kernel=kernel, stride=2, dilation=1, shape="cube", tensor_stride=2,
         coordinates="generated" if generated else "mirror")(make)


transposed_case("convt_k2_s2", 2, False)
transposed_case("convt_k3_s2", 3, False)
transposed_case("convt_generated_k2_s2", 2, True)
transposed_case("convt_generated_k3_s2", 3, True)

# --- pooling ----------------------------------------------------------------------------------------------------


def pool_case(name, kind, kernel, stride):
    layer = {"sum": ME.MinkowskiSumPooling, "avg": ME.MinkowskiAvgPooling, "max": ME.MinkowskiMaxPooling}[kind]
    def make(file):
        x = file.sparse(cloud(file.name, 80, 3), 3)
        file.finish_sparse(layer(kernel_size=kernel, stride=stride, dimension=3)(x))
    make.__name__ = name
    case(op=f"pool_{kind}", dims=3, kernel=kernel, stride=stride, dilation=1, shape="cube", tensor_stride=1)(make)


for kind in ("sum", "avg", "max"):
    pool_case(f"pool_{kind}_k2_s2", kind, 2, 2)
    pool_case(f"pool_{kind}_k3_s2", kind, 3, 2)
    pool_case(f"pool_{kind}_k3_s1", kind, 3, 1)


def unpool(file, kernel):
    coords = cloud(file.name, 60, 3)
    fine = ME.SparseTensor(torch.zeros(len(coords), 1).double(), torch.from_numpy(coords))
    down = ME.MinkowskiSumPooling(kernel_size=kernel, stride=2, dimension=3)(fine)
    order = canonical(down.C.numpy())
    file.put("coords", down.C.numpy()[order])
    file.put("target", coords)
    rows = np.empty_like(order)
    rows[order] = np.arange(len(order))
    x = ME.SparseTensor(file.features(len(order), 3)[torch.from_numpy(rows)], coordinate_map_key=down.coordinate_map_key,
                        coordinate_manager=down.coordinate_manager)
    file.finish_sparse(ME.MinkowskiPoolingTranspose(kernel_size=kernel, stride=2, dimension=3)(x))


@case(op="unpool", dims=3, kernel=2, stride=2, tensor_stride=2, coordinates="mirror")
def unpool_k2_s2(file):
    unpool(file, 2)


@case(op="unpool", dims=3, kernel=3, stride=2, tensor_stride=2, coordinates="mirror")
def unpool_k3_s2(file):
    unpool(file, 3)


def global_case(kind):
    layer = {"sum": ME.MinkowskiGlobalSumPooling, "avg": ME.MinkowskiGlobalAvgPooling,
             "max": ME.MinkowskiGlobalMaxPooling}[kind]
    def make(file):
        """Batch index 1 of 0 to 2 has no points: its row is zero. MinkowskiEngine fails there, so it gets the
        indices 0 and 1, and the row is put in here."""
        coords = cloud(file.name, 50, 3)
        y = layer()(file.sparse(coords, 3))
        rows = y.F[torch.from_numpy(canonical(y.C.numpy()))]
        file.out["coords"] = coords * np.array([2, 1, 1, 1], np.int32)
        file.finish(torch.stack([rows[0], torch.zeros_like(rows[0]), rows[1]]))
    make.__name__ = f"global_{kind}"
    case(op=f"global_{kind}", dims=3, batches=3)(make)


for kind in ("sum", "avg", "max"):
    global_case(kind)

# --- norms ------------------------------------------------------------------------------------------------------


@case(op="batch_norm", dims=3, eps=1e-5, momentum=0.1)
def batch_norm(file):
    x = file.sparse(cloud(file.name, 50, 3), 4)
    layer = file.weights(ME.MinkowskiBatchNorm(4).double().train())
    file.finish_sparse(layer(x))
    file.put("state.running_mean", layer.bn.running_mean)
    file.put("state.running_var", layer.bn.running_var)


@case(op="instance_norm", dims=3, batches=2, eps=1e-8)
def instance_norm(file):
    """Mean and variance over the points of each sample."""
    x = file.sparse(cloud(file.name, 50, 3), 4)
    file.finish_sparse(file.weights(ME.MinkowskiInstanceNorm(4), (4,))(x))


# --- sets of coordinates ----------------------------------------------------------------------------------------


@case(op="union_add", dims=3)
def union_add(file):
    a = file.sparse(cloud(file.name, 30, 3, low=-2, high=2), 3)
    b = file.sparse(cloud(f"{file.name}/b", 30, 3, low=-2, high=2), 3, ".b", manager=a.coordinate_manager)
    file.finish_sparse(ME.MinkowskiUnion()(a, b))


@case(op="prune", dims=3)
def prune(file):
    x = file.sparse(cloud(file.name, 40, 3), 3)
    mask = uniform(f"{file.name}/mask", (len(x),)) > 0
    file.put("mask", mask.astype(np.int32))
    assert np.array_equal(x.C.numpy(), file.out["coords"])
    file.finish_sparse(ME.MinkowskiPruning()(x, torch.from_numpy(mask)))


def broadcast_case(name, layer):
    def make(file):
        coords = cloud(file.name, 40, 3)
        x = file.sparse(coords, 3)
        glob = ME.MinkowskiGlobalSumPooling()(x)
        rows = file.features(2, 3, ".b")[glob.C[:, 0].long()]
        g = ME.SparseTensor(rows, coordinate_map_key=glob.coordinate_map_key, coordinate_manager=glob.coordinate_manager)
        file.finish_sparse(layer()(x, g))
    make.__name__ = f"broadcast_{name}"
    case(op=f"broadcast_{name}", dims=3, batches=2)(make)


broadcast_case("add", ME.MinkowskiBroadcastAddition)
broadcast_case("mul", ME.MinkowskiBroadcastMultiplication)
broadcast_case("concat", ME.MinkowskiBroadcastConcatenation)


@case(op="concat", dims=3)
def concat(file):
    a = file.sparse(cloud(file.name, 40, 3), 3)
    b = ME.SparseTensor(file.features(len(a), 2, ".b"), coordinate_map_key=a.coordinate_map_key,
                        coordinate_manager=a.coordinate_manager)
    file.finish_sparse(ME.cat(a, b))


def interpolation(file, dims, tensor_stride):
    coords = cloud(file.name, 60, dims, low=-2, high=2)
    coords[:, 1:] *= tensor_stride
    x = file.sparse(coords, 3, tensor_stride=tensor_stride)
    points = np.concatenate([np.floor(uniform(f"{file.name}/batch", (30, 1), 0, 2)),
                             uniform(f"{file.name}/points", (30, dims), -3 * tensor_stride, 3 * tensor_stride)], 1)
    points[:4, 1:] = np.floor(points[:4, 1:])  # on the grid
    file.put("target", points)
    file.finish(ME.MinkowskiInterpolation()(x, torch.from_numpy(file.out["target"]).double()))


@case(op="interpolate", dims=3, tensor_stride=1)
def interpolate(file):
    interpolation(file, 3, 1)


@case(op="interpolate", dims=3, tensor_stride=2)
def interpolate_on_stride2(file):
    interpolation(file, 3, 2)


@case(op="interpolate", dims=2, tensor_stride=1)
def interpolate_2d(file):
    interpolation(file, 2, 1)


@case(op="to_dense", dims=3, batches=2)
def to_dense(file):
    """[N, C, *spatial] from the corner `lowest` on; absent places are zero."""
    coords = cloud(file.name, 40, 3)
    coords[:, 1:] += 4
    x = file.sparse(coords, 2)
    file.finish(x.dense(shape=torch.Size([2, 2, 8, 8, 8]), min_coordinate=torch.IntTensor([0, 0, 0]))[0])


# --- quantisation -----------------------------------------------------------------------------------------------


def quantisation(file, mode):
    coords = cloud(file.name, 300, 3, low=-2, high=2)
    picked = np.floor(uniform(f"{file.name}/pick", (120,), 0, len(coords))).astype(int)
    points = coords[picked].astype(np.float32)
    points[:, 1:] += uniform(f"{file.name}/inside", (120, 3), 0.05, 0.95)
    file.put("coords", np.floor(points).astype(np.int32))
    file.put("points", points)
    features = file.features(120, 3)
    if mode is not None:
        file.finish_sparse(ME.SparseTensor(features, torch.from_numpy(file.out["coords"]), quantization_mode=mode))
        return
    places, row = np.unique(file.out["coords"], axis=0, return_inverse=True)
    at = torch.from_numpy(row.reshape(-1))
    file.finish(torch.stack([features[at == i].max(0)[0] for i in range(len(places))]), places)


@case(op="quantise_avg", dims=3)
def quantise_avg(file):
    quantisation(file, ME.SparseTensorQuantizationMode.UNWEIGHTED_AVERAGE)


@case(op="quantise_sum", dims=3)
def quantise_sum(file):
    quantisation(file, ME.SparseTensorQuantizationMode.UNWEIGHTED_SUM)


@case(op="quantise_max", dims=3, by="PyTorch")
def quantise_max(file):
    quantisation(file, None)


@case(op="quantise_random", dims=3)
def quantise_random(file):
    """Every row of the result is one of the rows at its place; which one is free."""
    quantisation(file, ME.SparseTensorQuantizationMode.RANDOM_SUBSAMPLE)


@case(op="quantise_labels", dims=3, ignore=-100, voxel=0.5, by="NumPy")
def quantise_labels(file):
    points = uniform(f"{file.name}/points", (150, 3), -1, 1)
    labels = np.floor(uniform(f"{file.name}/labels", (150,), 0, 2)).astype(np.int32)
    file.put("points", points)
    file.put("labels", labels)
    coords = np.floor(points / np.float32(0.5)).astype(np.int32)
    places, row = np.unique(coords, axis=0, return_inverse=True)
    found = [np.unique(labels[row.reshape(-1) == i]) for i in range(len(places))]
    file.put("out.coords", places)
    file.put("out.labels", np.array([f[0] if len(f) == 1 else -100 for f in found], np.int32))


# --- where MinkowskiEngine is wrong: dense grids in PyTorch -----------------------------------------------------


def dense_conv(coords, x, weight, out_coords, kernel, stride, transposed=False):
    """A convolution on a dense grid, read at `out_coords`. Tensor strides are 1 on the fine and `stride` on the coarse side.

    The grid begins at a multiple of the stride below all coordinates, so strided positions fall on it."""
    both = np.concatenate([coords, out_coords])[:, 1:].astype(np.int64)
    base = both.min(0) // stride * stride - 2 * stride
    size = (both.max(0) - base) // stride * stride + 3 * stride
    batches = int(max(coords[:, 0].max(), out_coords[:, 0].max())) + 1
    cin, cout = weight.shape[1:]
    # First spatial axis fastest in the kernel index: the axes of the stored weight are reversed.
    w = weight.reshape(kernel, kernel, kernel, cin, cout).permute(4, 3, 2, 1, 0)
    low = kernel // 2 if kernel % 2 else 0  # offsets below zero
    high = kernel - 1 - low
    at = torch.from_numpy(coords[:, 1:].astype(np.int64) - base)
    out_at = torch.from_numpy(out_coords[:, 1:].astype(np.int64) - base)
    batch, out_batch = (torch.from_numpy(c[:, 0].astype(np.int64)) for c in (coords, out_coords))
    if not transposed:
        grid = torch.zeros(batches, *map(int, size), cin, dtype=torch.float64)
        grid = grid.index_put((batch, *at.T), x).permute(0, 4, 1, 2, 3)
        y = F.conv3d(F.pad(grid, (low, high) * 3), w, stride=stride)
        out_at = torch.div(out_at, stride, rounding_mode="floor")
    else:
        at = torch.div(at, stride, rounding_mode="floor")
        grid = torch.zeros(batches, *map(int, size // stride), cin, dtype=torch.float64)
        grid = grid.index_put((batch, *at.T), x).permute(0, 4, 1, 2, 3)
        # The mirror of y[u] += x[u + i] w_i: y[u + i] += x[u] w_i.
        y = F.conv_transpose3d(grid, w.permute(1, 0, 2, 3, 4), stride=stride)
        y = y[:, :, low:, low:, low:]
    return y.permute(0, 2, 3, 4, 1)[(out_batch, *out_at.T)]


def strided(coords, stride):
    out = coords.astype(np.int64)
    out[:, 1:] = out[:, 1:] // stride * stride
    return np.unique(out, axis=0).astype(np.int32)


def self_check():
    """The dense computation agrees with MinkowskiEngine where that is right."""
    for kernel, stride in itertools.product((2, 3, 5), (1, 2, 3)):
        coords = cloud("self", 60, 3)
        x = torch.from_numpy(uniform("self/x", (len(coords), 3))).double()
        w = torch.from_numpy(uniform("self/w", (kernel**3, 3, 4))).double()
        layer = ME.MinkowskiConvolution(3, 4, kernel_size=kernel, stride=stride, dimension=3)
        layer.kernel = nn.Parameter(w)
        y = layer(ME.SparseTensor(x, torch.from_numpy(coords)))
        order = canonical(y.C.numpy())
        out_coords = strided(coords, stride)
        assert np.array_equal(y.C.numpy()[order], out_coords)
        off = (y.F[torch.from_numpy(order)] - dense_conv(coords, x, w, out_coords, kernel, stride)).abs().max()
        assert off < 1e-12, (kernel, stride, off)
        if stride == 1:
            continue
        up = ME.MinkowskiConvolutionTranspose(4, 3, kernel_size=kernel, stride=stride, dimension=3)
        up.kernel = nn.Parameter(w.transpose(1, 2).contiguous())
        z = up(y)
        order_z = canonical(z.C.numpy())
        dense = dense_conv(out_coords, y.F[torch.from_numpy(order)], up.kernel, coords, kernel, stride, transposed=True)
        off = (z.F[torch.from_numpy(order_z)] - dense).abs().max()
        assert off < 1e-12, ("transposed", kernel, stride, off)


def far_case(name, kernel, stride, offset):
    def make(file):
        coords = cloud(file.name, 60, 3)
        coords[:, 1:] += np.asarray(offset, np.int32)
        file.put("coords", coords)
        x = file.features(len(coords), 3)
        w = file.leaf("weight", uniform(f"{file.name}/weight", (kernel**3, 3, 4)))
        out_coords = strided(coords, stride)
        file.metadata["out_stride"] = text([stride] * 3)
        file.finish(dense_conv(coords, x, w, out_coords, kernel, stride), out_coords)
    make.__name__ = name
    case(op="conv", by="PyTorch", dims=3, kernel=kernel, stride=stride, dilation=1, shape="cube", tensor_stride=1)(make)


far_case("far_conv_k3", 3, 1, (2**24 + 1, -(2**27) - 5, 2**30 + 3))
far_case("far_conv_k2_s2", 2, 2, (2**24 + 1, -(2**27) - 5, 2**30 + 3))
far_case("far_conv_k3_s3", 3, 3, (2**24 + 1, -(2**27) - 5, 2**30 + 3))


@case(op="convt", by="PyTorch", dims=3, kernel=2, stride=2, dilation=1, shape="cube", tensor_stride=2, coordinates="mirror")
def convt_other_map(file):
    """A first tensor (`coords.a`) has the same stride: its fine coordinates must not be taken for those of the second."""
    other, coords = cloud(f"{file.name}/other", 50, 3), cloud(file.name, 60, 3)
    file.put("coords.a", other)
    coarse = strided(coords, 2)
    file.put("coords", coarse)
    file.put("target", coords)
    x = file.features(len(coarse), 4)
    w = file.leaf("weight", uniform(f"{file.name}/weight", (8, 4, 3)))
    file.metadata["out_stride"] = "1x1x1"
    file.finish(dense_conv(coarse, x, w, coords, 2, 2, transposed=True), coords)


# --- networks ---------------------------------------------------------------------------------------------------

MASK = (1 << 64) - 1


def hash_of(name, index):
    """FNV-1a of the name, mixed with the index as splitmix64 does."""
    key = 0xcbf29ce484222325
    for byte in name.encode():
        key = (key ^ byte) * 0x100000001b3 & MASK
    with np.errstate(over="ignore"):
        z = np.uint64(key) + (np.asarray(index, np.uint64) + np.uint64(1)) * np.uint64(0x9e3779b97f4a7c15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xbf58476d1ce4e5b9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94d049bb133111eb)
        return z ^ (z >> np.uint64(31))


def formula(name, shape):
    """u in [0, 1) from the upper 24 bits of the hash. Kernels: (2 u - 1) / sqrt(product of all axes but the last); a norm's
    `weight`: 0.5 + u; every `bias`: 0.6 u - 0.3. In double, rounded to f32."""
    count = int(np.prod(shape))
    u = (hash_of(name, np.arange(count)) >> np.uint64(40)).astype(np.float64) * 2.0**-24
    if name.endswith("bias"):
        value = 0.6 * u - 0.3
    elif len(shape) == 1:
        value = 0.5 + u
    else:
        value = (2 * u - 1) / math.sqrt(np.prod(shape[:-1]))
    return value.astype(np.float32).reshape(shape)


class Block(nn.Module):
    def __init__(s, i, o):
        super().__init__()
        s.conv1 = ME.MinkowskiConvolution(i, o, kernel_size=3, dimension=3); s.norm1 = ME.MinkowskiBatchNorm(o)
        s.conv2 = ME.MinkowskiConvolution(o, o, kernel_size=3, dimension=3); s.norm2 = ME.MinkowskiBatchNorm(o)
        s.relu = ME.MinkowskiReLU()
        if i != o:
            s.skip = nn.ModuleDict(dict(conv=ME.MinkowskiConvolution(i, o, kernel_size=1, dimension=3),
                                        norm=ME.MinkowskiBatchNorm(o)))

    def forward(s, x):
        y = s.norm2(s.conv2(s.relu(s.norm1(s.conv1(x)))))
        return s.relu(y + (s.skip["norm"](s.skip["conv"](x)) if hasattr(s, "skip") else x))


def layer(kind, *arguments, **options):
    return nn.ModuleDict(dict(conv=kind(*arguments, dimension=3, **options), norm=ME.MinkowskiBatchNorm(arguments[1])))


class MinkUNet(nn.Module):
    """The names of the layers are those of the file: stem, down0, enc0.0, ..., up0, dec0.0, ..., out."""

    def __init__(s, layers, cin, classes, planes=(32, 64, 128, 256, 256, 128, 96, 96)):
        super().__init__()
        s.relu = ME.MinkowskiReLU()
        s.stem = layer(ME.MinkowskiConvolution, cin, 32, kernel_size=5)
        c, skips = 32, [32]
        for i in range(4):
            setattr(s, f"down{i}", layer(ME.MinkowskiConvolution, c, c, kernel_size=2, stride=2))
            blocks = [Block(c if j == 0 else planes[i], planes[i]) for j in range(layers[i])]
            setattr(s, f"enc{i}", nn.Sequential(*blocks))
            c = planes[i]
            skips.append(c)
        for i in range(4):
            setattr(s, f"up{i}", layer(ME.MinkowskiConvolutionTranspose, c, planes[4 + i], kernel_size=2, stride=2))
            c = planes[4 + i] + skips[3 - i]
            blocks = [Block(c if j == 0 else planes[4 + i], planes[4 + i]) for j in range(layers[4 + i])]
            setattr(s, f"dec{i}", nn.Sequential(*blocks))
            c = planes[4 + i]
        s.out = ME.MinkowskiConvolution(c, classes, kernel_size=1, bias=True, dimension=3)

    def forward(s, x):
        run = lambda l, x: s.relu(l["norm"](l["conv"](x)))
        x = run(s.stem, x)
        skips = [x]
        for i in range(4):
            x = getattr(s, f"enc{i}")(run(getattr(s, f"down{i}"), x))
            skips.append(x)
        for i in range(4):
            x = getattr(s, f"dec{i}")(ME.cat(run(getattr(s, f"up{i}"), x), skips[3 - i]))
        return s.out(x)


def room(name, count):
    """Floor, two walls and a box as voxels on surfaces, thinned; in canonical order."""
    side = (14, 12, 9)
    grid = np.stack(np.meshgrid(*map(np.arange, side), indexing="ij"), -1).reshape(-1, 3)
    surface = (grid == 0).any(1)
    box = ((grid >= (4, 3, 1)) & (grid <= (9, 8, 5))).all(1)
    surface |= box & ((grid == (4, 3, 1)) | (grid == (9, 8, 5))).any(1)
    grid = grid[surface]
    keep = np.sort(np.argsort(uniform(f"{name}/keep", (len(grid),)), kind="stable")[:count])
    grid = grid[keep] - (7, 3, 2)
    labels = np.where(grid[:, 2] == -2, 0, np.where((grid == (-7, -3, -2)).any(1), 1, 2))
    return grid.astype(np.int32), labels.astype(np.int32)


def nearest_to_zero(net, x):
    """Of all that goes into a ReLU. It decides what flows back, and f32 must not decide otherwise than double."""
    least = []
    hooks = [m.register_forward_pre_hook(lambda _, x: least.append(float(x[0].F.detach().abs().min())))
             for m in net.modules() if isinstance(m, ME.MinkowskiReLU)]
    with torch.no_grad():
        net(x)
    for h in hooks:
        h.remove()
    return min(least)


def stored_name(name):
    return name.replace(".bn.", ".").replace("kernel", "weight")


def stored_shape(name, p):
    if name.endswith("kernel"):
        return (1, *p.shape) if p.dim() == 2 else tuple(p.shape)
    return (p.numel(),)


def reduced(file, kind, name, value):
    value = value.detach().reshape(-1)
    n = len(value)
    pick = np.concatenate([np.minimum(np.arange(8), n - 1), (hash_of(name, np.arange(8)) % np.uint64(n)).astype(np.int64)])
    file.put(f"pick.{name}", pick.astype(np.int32))
    file.put(f"{kind}.{name}", torch.cat([value.norm()[None], value[torch.from_numpy(pick)]]))


MARGIN = 1.5e-5  # some times what f32 is off by in front of a ReLU


def network(file, layers, classes):
    rooms = [room(f"{file.name}/{i}", 50 + 10 * i) for i in range(2)]
    coords = np.concatenate([np.concatenate([np.full((len(c), 1), i, np.int32), c], 1) for i, (c, _) in enumerate(rooms)])
    target = np.concatenate([l for _, l in rooms])
    target[np.arange(0, len(target), 17)] = -1
    file.put("coords", coords)
    file.put("target", target)
    net = MinkUNet(layers, 3, classes).double().train()
    names = []
    with torch.no_grad():
        for name, p in net.named_parameters():
            names.append((stored_name(name), stored_shape(name, p)))
            p.copy_(torch.from_numpy(formula(*names[-1])).reshape(p.shape))
    file.metadata["names"] = " ".join(f"{n}:{text(shape)}" for n, shape in names)
    file.metadata["parameters"] = str(sum(p.numel() for p in net.parameters()))
    for seed in range(1000):
        features = uniform(f"{file.name}/features{seed}", (len(coords), 3))
        x = ME.SparseTensor(torch.from_numpy(features).double(), torch.from_numpy(coords))
        start = {k: v.clone() for k, v in net.state_dict().items()}
        margin = nearest_to_zero(net, x)
        net.load_state_dict(start)
        if margin > MARGIN:
            break
    else:
        sys.exit(f"{file.name}: no features keep every ReLU away from zero")
    file.put("features", features)
    file.metadata["margin"] = f"{margin:.3g}"
    y = net(x)
    assert np.array_equal(y.C.numpy(), coords)
    loss = F.cross_entropy(y.F, torch.from_numpy(target).long(), ignore_index=-1)
    loss.backward()
    file.put("loss", loss)
    file.put("pred", y.F)
    for name, p in net.named_parameters():
        reduced(file, "grad", stored_name(name), p.grad)
    for name, b in net.named_buffers():
        if not name.endswith("num_batches_tracked"):
            reduced(file, "state", stored_name(name), b)


@case(op="network", model="minkunet14", dims=3, classes=4, loss="ce", ignore=-1)
def minkunet14(file):
    network(file, (1,) * 8, 4)


@case(op="network", model="minkunet34c", dims=3, classes=20, loss="ce", ignore=-1)
def minkunet34c(file):
    network(file, (2, 3, 4, 6, 2, 2, 2, 2), 20)


def main():
    if len(sys.argv) < 2:
        sys.exit("usage: make_sparse.py FOLDER [CASE ...]")
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    self_check()
    for name in sys.argv[2:] or CASES:
        make, attributes = CASES[name]
        file = File(name, attributes)
        make(file)
        save_file(file.out, folder / f"{name}.safetensors", file.metadata)


if __name__ == "__main__":
    main()
