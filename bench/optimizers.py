#!/usr/bin/env python3
"""Loss curves of all optimisers on `data synth shapes`, in one picture.

    python3 bench/optimizers.py --out optimizers.svg

Each optimiser trains the same network from the same weights on the same batches; only rule and rate
differ. The rates (RATES) were set by hand. Needs nothing but the built command.
"""
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import common

RATES = {"sgd": 0.1, "momentum": 0.01, "nesterov": 0.01, "adagrad": 2.5e-3, "rmsprop": 1e-4,
         "adam": 2.5e-4, "adamw": 2.5e-4, "lamb": 2e-3, "lars": 4.0}
COLORS = ["#888888", "#1f77b4", "#17becf", "#8c564b", "#ff7f0e", "#d62728", "#e377c2", "#2ca02c",
          "#9467bd"]


def run(args, folder, data, rule):
    """Steps as (samples, loss), and the last line of train --json."""
    out = pathlib.Path(folder) / rule
    command = [args.widefield, "train", f"model.name={args.model}", f"data.path={data}",
               f"train.epochs={args.epochs}", f"train.batch={args.batch}", f"train.optimizer={rule}",
               f"train.lr={RATES[rule]}", "train.samples=0", f"run.threads={args.threads}",
               f"train.precision={args.precision}",
               "--out", str(out), "--json", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"'{' '.join(command)}' failed with {done.returncode}: {done.stderr.strip()}")
    events = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    steps = [(e["step"], e["loss"]) for e in events if e["event"] == "step" and e["loss"]]
    return steps, json.loads(done.stdout.splitlines()[-1])


def smooth(steps, span):
    """A mean that forgets over about `span` steps; steps that the log left out count by distance."""
    curve, mean, last = [], None, 0
    for step, loss in steps:
        keep = math.exp(-(step - last) / span)
        mean = loss if mean is None else keep * mean + (1 - keep) * loss
        last = step
        curve.append((step, mean))
    return curve


def draw(curves, title):
    """The picture as SVG: a line for each rule, its name where it ends."""
    width, height, left, right, top, bottom = 960, 560, 60, 120, 44, 46
    most_x = max(step for curve in curves.values() for step, _ in curve)
    most_y = max(y for curve in curves.values() for _, y in curve[:3]) * 1.05

    def x(step):
        return left + (width - left - right) * step / most_x

    def y(loss):
        return top + (height - top - bottom) * (1 - min(loss, most_y) / most_y)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
             'font-family="sans-serif" font-size="13">',
             f'<rect width="{width}" height="{height}" fill="white"/>',
             f'<text x="{left}" y="26" font-size="16">{title}</text>']
    tick = 10 ** math.floor(math.log10(most_y)) / 2
    for k in range(int(most_y / tick) + 1):
        at = y(k * tick)
        parts.append(f'<path d="M{left} {at:.1f}H{width - right}" stroke="#dddddd"/>')
        parts.append(f'<text x="{left - 8}" y="{at + 4:.1f}" text-anchor="end">{k * tick:g}</text>')
    for k in range(6):
        step = most_x * k / 5
        parts.append(f'<text x="{x(step):.1f}" y="{height - bottom + 20}" text-anchor="middle">'
                     f'{step:.0f}</text>')
    parts.append(f'<text x="{(left + width - right) / 2}" y="{height - 8}" text-anchor="middle">'
                 'updates</text>')
    parts.append(f'<text transform="translate(16 {height / 2}) rotate(-90)" text-anchor="middle">'
                 'training loss</text>')
    # Names stand beside the ends of their lines, at least a line's height apart.
    ends = sorted((y(curve[-1][1]), rule) for rule, curve in curves.items())
    for i in range(1, len(ends)):
        ends[i] = (max(ends[i][0], ends[i - 1][0] + 16), ends[i][1])
    over = max(0, ends[-1][0] - (height - bottom))
    places = {rule: at - over for at, rule in ends}
    for (rule, curve), color in zip(curves.items(), COLORS):
        points = " ".join(f"{x(step):.1f},{y(loss):.1f}" for step, loss in curve)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts.append(f'<text x="{width - right + 8}" y="{places[rule] + 4:.1f}" fill="{color}">'
                     f'{rule} {RATES[rule]:g}</text>')
    return "\n".join(parts + ["</svg>"]) + "\n"


def main():
    args = common.arguments(__doc__.split("\n")[0], out="optimizers.svg", model="alexnet_cifar",
                            count=12000, epochs=2, batch=32, threads=2, precision="bf16",
                            rules=" ".join(RATES))
    curves, table = {}, []
    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder) / "shapes"
        subprocess.run([args.widefield, "data", "synth", "shapes", "--out", str(data), "--count",
                        str(args.count), "--quiet"], check=True)
        for rule in args.rules.split():
            steps, last = run(args, folder, data, rule)
            curves[rule] = smooth(steps, max(steps[-1][0] / 40, 1))
            table.append({"optimizer": rule, "lr": RATES[rule], "loss": last["loss"],
                          "accuracy": last["metric"]["accuracy"]})
            if not args.json:
                print(f"{rule:10} lr {RATES[rule]:<7g} loss {last['loss']:.4f}  "
                      f"test accuracy {last['metric']['accuracy']:.4f}", flush=True)
    title = f"{args.model} on shapes: {args.count} images, batch {args.batch}, {args.epochs} epochs"
    pathlib.Path(args.out).write_text(draw(curves, title))
    if args.json:
        print(json.dumps(table))


main()
