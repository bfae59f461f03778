#!/usr/bin/env python3
"""Networks of other libraries by widefield.from_torch(), against PyTorch in float64. Run by hand:

    PYTHONPATH=python WIDEFIELD_LIBRARY=build/libwidefield.so python3 tests/interop/torch_modules.py [part of a name ...]

It needs torch, and of torchvision, segmentation_models_pytorch, monai and dynamic_network_architectures those whose
networks are asked for. A line for each: the largest relative difference of the prediction (running statistics) and of the
gradients of all weights (batch statistics, dropout off), for the sum of squares of the result; beside each, in brackets,
that of PyTorch's own float32.

ok: prediction within 1e-5 and all gradients within 1e-4. near: gradients are beyond 1e-4, but within four times what
rounding does to PyTorch's own (see compare()); this is weaker evidence, and not the 1e-4 that is asked for. BAD: neither.

--smooth puts SiLU in place of every nn.ReLU and F.relu(), and means in place of max poolings, so that there is no kink for
rounding to carry a value over.
--verify compares a cut step with a whole one as well, --quick translates and compares the translation in PyTorch only.
"""

import copy
import logging
import sys
import time
import warnings

import numpy as np
import torch
from torch import nn

import widefield


def torchvision(name, **options):
    import torchvision as library

    return library.models.get_model(name, weights=None, **options)


def smp(name, encoder):
    import segmentation_models_pytorch as library

    return getattr(library, name)(encoder, encoder_weights=None, classes=2)


def monai(name, *arguments, **options):
    import monai.networks.nets as library

    return getattr(library, name)(*arguments, **options)


def nnunet(name, conv, norm, blocks):
    import dynamic_network_architectures.architectures.unet as library

    options = {"norm_op": norm, "norm_op_kwargs": {"affine": True}, "nonlin": nn.LeakyReLU, "nonlin_kwargs": {"inplace": True}}
    return getattr(library, name)(1, 4, [8, 16, 32, 64], conv, 3, [1, 2, 2, 2], blocks, 2, [1, 1, 1], **options)


def cases():
    """Name: how it is made, and the size of a batch."""
    found = {}
    for name in ("resnet18", "densenet121", "mobilenet_v2", "mobilenet_v3_small", "efficientnet_b0", "convnext_tiny",
                 "regnet_y_400mf", "shufflenet_v2_x1_0", "vgg11_bn", "squeezenet1_1", "googlenet", "alexnet"):  # fmt: skip
        found[f"torchvision {name}"] = (lambda n=name: torchvision(n)), (2, 3, 128, 128)
    for name in ("fcn_resnet50", "deeplabv3_resnet50", "lraspp_mobilenet_v3_large"):
        found[f"torchvision {name}"] = (lambda n=name: torchvision(n, weights_backbone=None)), (2, 3, 96, 96)
    for name in ("UnetPlusPlus", "FPN", "PSPNet", "DeepLabV3", "DeepLabV3Plus", "Linknet", "MAnet", "PAN"):
        found[f"smp {name} resnet18"] = (lambda n=name: smp(n, "resnet18")), (2, 3, 128, 128)
    for encoder in ("resnet34", "efficientnet-b0", "mobilenet_v2", "densenet121", "se_resnext50_32x4d", "timm-regnetx_002",
                    "vgg11_bn", "tu-convnext_atto"):  # fmt: skip
        found[f"smp Unet {encoder}"] = (lambda e=encoder: smp("Unet", e)), (2, 3, 96, 96)
    two, three = {"spatial_dims": 2, "in_channels": 1, "out_channels": 2}, {"spatial_dims": 3, "in_channels": 1, "out_channels": 2}
    levels = {"channels": (8, 16, 32), "strides": (2, 2)}
    found["monai UNet 2D"] = (lambda: monai("UNet", **two, **levels, num_res_units=2)), (2, 1, 64, 64)
    found["monai UNet 3D"] = (lambda: monai("UNet", **three, **levels, num_res_units=2)), (2, 1, 32, 32, 32)
    found["monai BasicUNet"] = (lambda: monai("BasicUNet", **two)), (2, 1, 64, 64)
    found["monai SegResNet"] = (lambda: monai("SegResNet", **two)), (2, 1, 64, 64)
    found["monai DynUNet"] = (lambda: monai("DynUNet", 2, 1, 2, [3, 3, 3], [1, 2, 2], [2, 2])), (2, 1, 64, 64)
    found["monai AttentionUnet"] = (lambda: monai("AttentionUnet", **two, **levels)), (2, 1, 64, 64)
    found["monai VNet"] = (lambda: monai("VNet", **three)), (2, 1, 32, 32, 32)
    found["monai HighResNet"] = (lambda: monai("HighResNet", **two)), (2, 1, 48, 48)
    found["monai FlexibleUNet"] = (lambda: monai("FlexibleUNet", 3, 2, "efficientnet-b0")), (2, 3, 64, 64)
    found["nnU-Net PlainConvUNet"] = (
        lambda: nnunet("PlainConvUNet", nn.Conv2d, nn.InstanceNorm2d, 2)), (2, 1, 64, 64)  # fmt: skip
    found["nnU-Net ResidualEncoderUNet"] = (
        lambda: nnunet("ResidualEncoderUNet", nn.Conv3d, nn.InstanceNorm3d, [1, 2, 2, 2])), (2, 1, 32, 32, 32)  # fmt: skip
    return found


def still(module):
    """Without what is random in training."""
    for part in module.modules():
        if isinstance(part, nn.modules.dropout._DropoutNd):
            part.p = 0.0
        for name in ("drop_prob", "drop_connect_rate", "p"):
            if type(part).__name__ in ("StochasticDepth", "DropPath", "MBConvBlock") and hasattr(part, name):
                setattr(part, name, 0.0)
        params = getattr(part, "_global_params", None)
        if params is not None and hasattr(params, "_replace"):
            part._global_params = params._replace(drop_connect_rate=0.0, dropout_rate=0.0)
    return module


def smooth(module):
    """SiLU in place of ReLU and means in place of max poolings, wherever those are modules."""
    for name, child in module.named_children():
        if isinstance(child, nn.ReLU):
            setattr(module, name, nn.SiLU())
        elif isinstance(child, nn.MaxPool2d):
            mean = nn.AvgPool2d(child.kernel_size, child.stride, child.padding, child.ceil_mode, count_include_pad=False)
            setattr(module, name, mean)
        else:
            smooth(child)


def first(result):
    """The prediction among what forward() returns."""
    if isinstance(result, dict):
        return result["out"]
    return result[0] if isinstance(result, (list, tuple)) or type(result).__name__.endswith("Outputs") else result


def apart(a, b):
    return float(np.linalg.norm(a - b) / (np.linalg.norm(b) + 1e-30))


def gradients(module, x):
    """PyTorch's, of the sum of squares, by name."""
    module.train()
    (first(module(x)) ** 2).sum().backward()
    return {name: p.grad.double().numpy() for name, p in module.named_parameters() if p.grad is not None}


def shaken(module, seed):
    """A copy with weights that differ by about 1e-6 of themselves."""
    copied = copy.deepcopy(module)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in copied.parameters():
            p.mul_(1 + 1e-6 * torch.randn(p.shape, generator=generator, dtype=p.dtype))
    return copied


def compare(module, network, size):
    """Differences of the prediction and of gradients, and the usual ones: of PyTorch in float32, and in float64 with weights
    that are rounded otherwise (by 1e-6). An activation that rounding carries over its bend changes gradients in steps, and
    batch norms over few positions, as small images have them in deep levels, magnify it."""
    x = torch.randn(*size, generator=torch.Generator().manual_seed(3))
    double = copy.deepcopy(module).double().eval()
    with torch.no_grad():
        expected = first(double(x.double())).numpy()
    with widefield.Session(network) as session:
        with widefield.Exec(session, size) as function:
            forward = apart(function.forward(x).reshape(expected.shape), expected)
        with widefield.Exec(session, size, training=True, gradients=True) as function:
            y = function.forward(x)
            found = function.backward(2 * y)
    others = [gradients(copy.deepcopy(module), x)] + [gradients(shaken(double, seed), x.double()) for seed in range(3)]
    theirs = gradients(double, x.double())
    names = {network.torch_names.get(name, name): name for name in found}
    most = max(np.linalg.norm(g) for g in theirs.values())
    # A bias before a normalisation has a gradient of 0 but for rounding.
    counted = [name for name, g in theirs.items() if name in names and np.linalg.norm(g) > 1e-7 * most]
    ours = {name: apart(found[names[name]].reshape(theirs[name].shape), theirs[name]) for name in counted}
    usual = {name: max(apart(other[name], theirs[name]) for other in others) for name in counted}
    ratio = max(ours[name] / max(usual[name], 2.5e-5) for name in counted)
    single = {name: apart(others[0][name], theirs[name]) for name in counted}  # PyTorch's own float32
    with torch.no_grad():
        single_forward = apart(first(copy.deepcopy(module).eval()(x)).numpy(), expected)
    medians = [float(np.median(list(d.values()))) for d in (ours, usual)]
    return (forward, single_forward), ratio, medians, (max(ours, key=ours.get), max(ours.values()), max(single.values()))


def main():
    warnings.filterwarnings("ignore")
    logging.getLogger("widefield").setLevel(logging.ERROR)
    wanted = [word for word in sys.argv[1:] if not word.startswith("-")]
    if "--smooth" in sys.argv:  # GoogLeNet calls the function
        nn.functional.relu = lambda x, inplace=False: nn.functional.silu(x)
    passed = nearly = tried = 0
    for name, (make, size) in cases().items():
        if wanted and not any(word in name for word in wanted):
            continue
        tried += 1
        torch.manual_seed(0)
        began = time.monotonic()
        try:
            module = still(make())
            if "--smooth" in sys.argv:
                smooth(module)
            network = widefield.from_torch(module, size)
            text = f"{len(network.spec['layers'])} layers"
            ok, near = True, False
            if "--quick" not in sys.argv:
                (forward, single_forward), ratio, (median, usual), (worst, most, single) = compare(module, network, size)
                ok = forward < 1e-5 and most < 1e-4
                near = forward < 1e-5 and ratio < 4
                text += f", forward {forward:.1e} (PyTorch's f32 {single_forward:.1e}), gradients at most {most:.1e}"
                text += f" (f32 {single:.1e}) at {worst}, half below {median:.1e}"
                text += f" (PyTorch rounded {usual:.1e}; ratio {ratio:.1f})"
            if "--verify" in sys.argv:
                cut = "space=" + "x".join(["2"] * (len(size) - 2))
                checks = [network.verify(size, mesh=mesh) for mesh in (cut, "data=2")]
                ok, near = ok and all(checks), near and all(checks)
                text += f", verify {[f'{c.gradients:.0e}' for c in checks]}"
        except widefield.Error as error:
            ok, near, text = False, False, f"{type(error).__name__}: {error}"
        passed += ok
        nearly += near and not ok
        print(f"{'ok  ' if ok else 'near' if near else 'BAD '} {name:32} {text}, {time.monotonic() - began:.0f} s", flush=True)
    print(f"{passed} of {tried} ok, {nearly} near")
    return 0 if passed == tried else 1


if __name__ == "__main__":
    raise SystemExit(main())
