#!/usr/bin/env python3
"""Does communication between subdomains help? The study of DDU-Net on `discs` as one command.

    python3 bench/ddunet.py --out build/ddunet                   table, JSON and picture
    python3 bench/ddunet.py --tiles 2,3,4,6,8,16 --train 4000 --epochs 30      the published size

Images are rows of N subdomains of 32 x 32; two discs are in different subdomains, and the mask has the
line that joins them. A subdomain alone cannot know where the line runs. For each N these are trained on
the same images, with the same steps and the same seeds, and scored by the IoU of the line on test
images:

    F = 0                a U-Net on each subdomain, without communication
    F = 1, 4, 16, 32     DDU-Net with F shared channels
    alone                DDU-Net's largest F, its communication network on each subdomain separately
    unet                 the plain U-Net on the whole image, with exact halos

Every run is a process of one thread, one process per core. Results are kept in OUT/results.jsonl, so a
study that was stopped can be resumed.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINE = 1  # its class


def numbers(text):
    return [int(n) for n in text.split(",") if n]


def run(command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"'{' '.join(map(str, command))}' failed with {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout.strip().splitlines()[-1]) if "--json" in command else None


def make_data(args, n):
    sets = {}
    for name, count, seed in (("train", args.train + args.valid, 1), ("test", args.test, 2)):
        sets[name] = args.out / f"discs{n}-{name}-{count}"
        if not sets[name].exists():
            run([args.widefield, "data", "synth", "discs", "--out", sets[name], "--count", count, "--size",
                 f"32x{32 * n}", "--seed", seed, "--quiet"])
    return sets


def network(args, n, variant):
    keys = ["model.in=1", "model.classes=3", f"model.base={args.base}", f"model.depth={args.depth}"]
    if variant == "unet":
        return ["model.name=unet", *keys]
    channels = max(args.channels) if variant == "alone" else int(variant)
    where = "alone" if variant == "alone" else "coarsest"
    return ["model.name=ddunet", *keys, f"model.tiles=1x{n}", f"model.comm.channels={channels}",
            f"model.comm.where={where}"]


def train(args, sets, n, variant, seed):
    folder = args.out / f"run-{n}-{variant}-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    valid = args.valid / (args.train + args.valid)
    trained = run([args.widefield, "train", *network(args, n, variant), f"data.path={sets['train']}",
                   f"data.validation={valid}", f"train.epochs={args.epochs}", "train.batch=32",
                   "train.optimizer=adam", "train.lr=5e-3", "train.loss=dice", "train.schedule=plateau",
                   "train.gamma=0.5", "train.patience=2", f"train.seed={seed}", "train.samples=0",
                   "--threads", "1", "--out", folder, "--json", "--quiet"])
    scored = run([args.widefield, "eval", folder, sets["test"], "--threads", "1", "--json", "--quiet"])
    shutil.rmtree(folder)
    return {"n": n, "variant": variant, "seed": seed, "iou": scored["iou"], "steps": trained["steps"],
            "loss": trained["loss"], "size": [args.train, args.valid, args.test, args.epochs, args.base, args.depth]}


def plan(args, n, variant):
    """Memory and received bytes of a rank in a step of one image on n ranks, and the predicted time."""
    made = run([args.widefield, "plan", *network(args, n, variant), f"data.size=1,1,32,{32 * n}", "train.loss=dice",
                "--mesh", f"space={n}", "--json", "--quiet"])
    ranks = made["per_rank"]
    return {"held": max(r["arena_bytes"] + r["param_bytes"] for r in ranks),
            "fetched": max(r["fetch_bytes"] for r in ranks), "seconds": made["step_seconds"]}


def table(args, results):
    variants = [*map(str, args.channels), "alone", "unet"]
    lines = ["| N | " + " | ".join(v if v in ("alone", "unet") else f"F = {v}" for v in variants) + " |",
             "|---|" + "---|" * len(variants)]
    for n in args.tiles:
        cells = []
        for variant in variants:
            scores = [100 * r["iou"][LINE] for r in results if (r["n"], r["variant"]) == (n, variant)]
            spread = f" ± {statistics.stdev(scores):.1f}" if len(scores) > 1 else ""
            cells.append(f"{statistics.mean(scores):.1f}{spread}" if scores else "")
        lines.append(f"| {n} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def costs(args):
    lines = ["| N ranks | network | a rank holds | fetched a step | predicted step |", "|---|---|---|---|---|"]
    for n in args.tiles:
        for variant in (str(max(args.channels)), "unet"):
            p = plan(args, n, variant)
            name = "unet, exact halos" if variant == "unet" else f"ddunet, F = {variant}"
            lines.append(f"| {n} | {name} | {p['held'] / 1024:.0f} KiB | {p['fetched'] / 1024:.1f} KiB |"
                         f" {1e3 * p['seconds']:.2f} ms |")
    return "\n".join(lines)


def picture(args, results, path):
    """The line's IoU over N, a curve for each network, bars for the spread over seeds."""
    colors = ["#6b7280", "#93c5fd", "#3b82f6", "#1d4ed8", "#1e3a8a", "#d97706", "#15803d"]
    variants = [*map(str, args.channels), "alone", "unet"]
    left, top, wide, high = 60, 30, 420, 260
    at_x = {n: left + wide * (i + 0.5) / len(args.tiles) for i, n in enumerate(args.tiles)}

    def at_y(percent):
        return top + high * (1 - percent / 100)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 660 350" font-family="sans-serif" font-size="12">',
           '<rect width="660" height="350" fill="white"/>',
           f'<text x="{left}" y="18" font-size="13">IoU of the line, % (mean and spread over seeds)</text>']
    for p in range(0, 101, 20):
        out.append(f'<path d="M{left} {at_y(p)}h{wide}" stroke="#e5e7eb"/>'
                   f'<text x="{left - 8}" y="{at_y(p) + 4}" text-anchor="end">{p}</text>')
    for n, x in at_x.items():
        out.append(f'<text x="{x}" y="{top + high + 18}" text-anchor="middle">N = {n}</text>')
    for k, (variant, color) in enumerate(zip(variants, colors[: len(variants) - 2] + colors[-2:])):
        points = []
        for n in args.tiles:
            scores = [100 * r["iou"][LINE] for r in results if (r["n"], r["variant"]) == (n, variant)]
            if not scores:
                continue
            x, mean = at_x[n] + 6 * (k - len(variants) / 2), statistics.mean(scores)
            points.append(f"{x:.1f} {at_y(mean):.1f}")
            out.append(f'<path d="M{x:.1f} {at_y(min(scores)):.1f}V{at_y(max(scores)):.1f}" stroke="{color}"/>'
                       f'<circle cx="{x:.1f}" cy="{at_y(mean):.1f}" r="3.5" fill="{color}"/>')
        if points:
            out.append(f'<path d="M{"L".join(points)}" fill="none" stroke="{color}" stroke-width="1.5"/>')
        name = {"alone": "subdomains alone", "unet": "U-Net, whole image", "0": "F = 0, no exchange"}.get(variant, f"F = {variant}")
        out.append(f'<circle cx="510" cy="{top + 12 + 20 * k}" r="4" fill="{color}"/>'
                   f'<text x="522" y="{top + 16 + 20 * k}">{name}</text>')
    path.write_text("\n".join([*out, "</svg>", ""]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--widefield", default=str(ROOT / "build" / "widefield"))
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "ddunet")
    parser.add_argument("--tiles", type=numbers, default=[2, 3, 4], help="N, such as 2,3,4,6,8,16")
    parser.add_argument("--channels", type=numbers, default=[0, 1, 4, 16, 32], help="F")
    for name, value in (("seeds", 3), ("train", 1500), ("valid", 250), ("test", 500), ("epochs", 12), ("base", 4),
                        ("depth", 3), ("jobs", os.cpu_count())):
        parser.add_argument(f"--{name}", type=int, default=value, help=f"({value})")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    log = args.out / "results.jsonl"
    size = [args.train, args.valid, args.test, args.epochs, args.base, args.depth]
    results = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    results = [r for r in results if r["size"] == size]
    done = {(r["n"], r["variant"], r["seed"]) for r in results}
    sets = {n: make_data(args, n) for n in args.tiles}
    # Seed by seed, so that early results cover all networks.
    todo = [(n, v, s) for s in range(1, args.seeds + 1) for n in args.tiles
            for v in (*map(str, args.channels), "alone", "unet") if (n, v, s) not in done]
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        jobs = {pool.submit(train, args, sets[n], n, v, s): (n, v, s) for n, v, s in todo}
        for i, job in enumerate(concurrent.futures.as_completed(jobs)):
            result = job.result()
            results.append(result)
            with log.open("a") as file:
                file.write(json.dumps(result) + "\n")
            print(f"{i + 1}/{len(todo)}: N = {result['n']}, {result['variant']}, seed {result['seed']}: "
                  f"line {100 * result['iou'][LINE]:.1f}", file=sys.stderr, flush=True)
    picture(args, results, args.out / "ddunet.svg")
    text = f"{table(args, results)}\n\n{costs(args)}\n"
    (args.out / "table.md").write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
