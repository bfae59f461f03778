#!/usr/bin/env python3
"""PyTorch's numbers for tests/test_optim.c: 20 steps of every rule, every schedule, loss scaling.

    python tests/optim/make_golden.py        needs torch, numpy and safetensors; writes golden.safetensors

LAMB and LARS are not in PyTorch: they follow the papers' algorithms (arXiv 1904.00962 version 5,
arXiv 1708.03888) written out here in numpy. All in f64. The gradient is a formula of place, step and
parameter, which the test repeats: cos(0.1 i + t) (1 + p / 2), t from 0.
"""
import math
import os

import numpy
import torch
from safetensors.numpy import save_file

STEPS = 20
SHAPES = [(7, 5), (11,), (3, 4, 5)]  # the vector is a bias
torch.set_default_dtype(torch.float64)


def start():
    """Parameters of every case, f32 numbers."""
    parts, at = [], 0
    for shape in SHAPES:
        n = math.prod(shape)
        flat = numpy.sin(1.3 * (at + numpy.arange(n)) + 0.2).astype(numpy.float32)
        parts.append(flat.astype(numpy.float64).reshape(shape))
        at += n
    return parts


def gradients(params, t):
    grads, at = [], 0
    for p in params:
        i = (at + numpy.arange(p.size)).reshape(p.shape)
        grads.append(numpy.cos(0.1 * i + t) * (1 + p / 2))
        at += p.size
    return grads


def with_torch(make, clip=None):
    params = [torch.tensor(p, requires_grad=True) for p in start()]
    optimizer = make(params)
    for t in range(STEPS):
        for p, g in zip(params, gradients([q.detach().numpy() for q in params], t)):
            p.grad = torch.tensor(g)
        if clip:
            torch.nn.utils.clip_grad_norm_(params, clip)
        optimizer.step()
    return [p.detach().numpy() for p in params]


def lamb(lr, decay, b1=0.9, b2=0.999, eps=1e-6, matrices_only=False):
    params = start()
    m, v = [0 * p for p in params], [0 * p for p in params]
    for t in range(STEPS):
        for k, g in enumerate(gradients(params, t)):
            adapts = params[k].ndim > 1 or not matrices_only
            m[k] = b1 * m[k] + (1 - b1) * g
            v[k] = b2 * v[k] + (1 - b2) * g * g
            r = m[k] / (1 - b1 ** (t + 1)) / (numpy.sqrt(v[k] / (1 - b2 ** (t + 1))) + eps)
            r = r + (decay if adapts else 0) * params[k]
            ratio = numpy.linalg.norm(params[k]) / numpy.linalg.norm(r) if adapts else 1
            params[k] = params[k] - lr * ratio * r
    return params


def lars(lr, decay, momentum=0.9, trust=1e-3):
    params = start()
    v = [0 * p for p in params]
    for t in range(STEPS):
        for k, g in enumerate(gradients(params, t)):
            w = numpy.linalg.norm(params[k])
            local = trust * w / (numpy.linalg.norm(g) + decay * w)
            v[k] = momentum * v[k] + lr * local * (g + decay * params[k])
            params[k] = params[k] - v[k]
    return params


def rules():
    o = torch.optim
    yield "sgd lr=0.1", with_torch(lambda p: o.SGD(p, 0.1))
    yield "sgd lr=0.1 weight_decay=0.05", with_torch(lambda p: o.SGD(p, 0.1, weight_decay=0.05))
    yield "sgd lr=0.1 clip=0.7", with_torch(lambda p: o.SGD(p, 0.1), clip=0.7)
    yield "momentum lr=0.1", with_torch(lambda p: o.SGD(p, 0.1, momentum=0.9))
    yield "momentum lr=0.1 momentum=0", with_torch(lambda p: o.SGD(p, 0.1, momentum=0.0))
    yield ("momentum lr=0.05 momentum=0.8 weight_decay=0.05",
           with_torch(lambda p: o.SGD(p, 0.05, momentum=0.8, weight_decay=0.05)))
    yield "nesterov lr=0.1", with_torch(lambda p: o.SGD(p, 0.1, momentum=0.9, nesterov=True))
    yield ("nesterov lr=0.05 momentum=0.7 weight_decay=0.05",
           with_torch(lambda p: o.SGD(p, 0.05, momentum=0.7, nesterov=True, weight_decay=0.05)))
    yield "adagrad lr=0.1", with_torch(lambda p: o.Adagrad(p, 0.1))
    yield ("adagrad lr=0.1 weight_decay=0.05",
           with_torch(lambda p: o.Adagrad(p, 0.1, weight_decay=0.05)))
    yield "rmsprop lr=0.01", with_torch(lambda p: o.RMSprop(p, 0.01))
    yield ("rmsprop lr=0.01 beta2=0.9 momentum=0.9 weight_decay=0.05",
           with_torch(lambda p: o.RMSprop(p, 0.01, alpha=0.9, momentum=0.9, weight_decay=0.05)))
    yield "adam lr=0.01", with_torch(lambda p: o.Adam(p, 0.01))
    yield ("adam lr=0.01 beta1=0.8 beta2=0.99 eps=1e-6 weight_decay=0.05",
           with_torch(lambda p: o.Adam(p, 0.01, betas=(0.8, 0.99), eps=1e-6, weight_decay=0.05)))
    yield "adam lr=0.01 clip=0.7", with_torch(lambda p: o.Adam(p, 0.01), clip=0.7)
    yield "adamw lr=0.01", with_torch(lambda p: o.AdamW(p, 0.01))
    yield ("adamw lr=0.05 weight_decay=0.2",
           with_torch(lambda p: o.AdamW(p, 0.05, weight_decay=0.2)))
    yield "lamb lr=0.01", lamb(0.01, 0.01)
    yield "lamb lr=0.05 weight_decay=0.2", lamb(0.05, 0.2)
    yield ("lamb lr=0.05 weight_decay=0.2 matrices_only=1",
           lamb(0.05, 0.2, matrices_only=True))
    yield "lars lr=10", lars(10, 5e-4)
    yield ("lars lr=1 momentum=0.5 weight_decay=0.05 trust=0.02",
           lars(1, 0.05, momentum=0.5, trust=0.02))


LOSSES = [3, 2, 2.1, 1.9999, 2.2, 2.3, 1, 1.1, 1.05, 0.99999, 1.2, 1.3, 1.4, 0.5, 0.6, 0.7, 0.8,
          0.9, 1.0, 1.1]


def schedules():
    def rates(make):
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1)
        scheduler = make(optimizer)
        watches = isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau)
        for t in range(STEPS):
            yield optimizer.param_groups[0]["lr"]
            optimizer.step()
            scheduler.step(LOSSES[t]) if watches else scheduler.step()

    s = torch.optim.lr_scheduler
    yield "constant", rates(lambda o: s.ConstantLR(o, factor=1))
    yield "step every=3 gamma=0.5", rates(lambda o: s.StepLR(o, 3, gamma=0.5))
    yield "exponential gamma=0.9", rates(lambda o: s.ExponentialLR(o, 0.9))
    yield "cosine length=20 least=0.01", rates(lambda o: s.CosineAnnealingLR(o, 20, eta_min=0.01))
    yield ("plateau gamma=0.5 patience=2 least=0.02",
           rates(lambda o: s.ReduceLROnPlateau(o, factor=0.5, patience=2, min_lr=0.02, eps=0)))
    yield ("constant warmup=8",
           rates(lambda o: s.LinearLR(o, start_factor=1 / 8, total_iters=7)))
    yield ("constant warmup=8 from=0.25",  # 0.25 + 0.75 (s + 1) / 8
           rates(lambda o: s.LinearLR(o, start_factor=0.25 + 0.75 / 8, total_iters=7)))


def scales():
    """GradScaler, growing after 3 good steps; a gradient is infinite at steps 2, 3 and 11."""
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
    w = torch.ones(1, dtype=torch.float32, requires_grad=True)
    optimizer = torch.optim.SGD([w], 0.0)
    for t in range(STEPS):
        yield scaler.get_scale()
        w.grad = torch.full((1,), math.inf if t in (2, 3, 11) else 1.0, dtype=torch.float32)
        scaler.scale(torch.zeros(1, dtype=torch.float32))  # makes its state
        scaler.step(optimizer)
        scaler.update()


def main():
    tensors = {}
    for name, params in rules():
        tensors["rule." + name] = numpy.concatenate([p.ravel() for p in params]).astype(numpy.float32)
    for name, rates in schedules():
        tensors["schedule." + name] = numpy.array(list(rates), dtype=numpy.float32)
    tensors["scale"] = numpy.array(list(scales()), dtype=numpy.float32)
    tensors["start"] = numpy.concatenate([p.ravel() for p in start()]).astype(numpy.float32)
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden.safetensors")
    save_file(tensors, path, metadata={"torch": torch.__version__})
    print(f"{path}: {len(tensors)} tensors, {os.path.getsize(path)} bytes")


main()
