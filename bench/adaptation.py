#!/usr/bin/env python3
"""Does adaptation work? Source only, gradient reversal (DANN), DSN and target only, on drawn domains, over seeds.

    bench/adaptation.py --out DIR [--case digits,tissue] [--seeds 3] [--jobs N] [--device cuda] [--scale X]
                        [--only ROW,...] [--variant "KEY=VALUE ..."]... [--minutes M] [KEY=VALUE ...]

The score is that of the target's validation part after the last epoch, so that no label of a target has a say in
anything; digits are of fonts that training has not seen. The share is that of the gap between source only and
target only. A source-only network never sees the target, running statistics included; where it has batch norms, a
row of its own says what the target's statistics alone do. --scale multiplies the epochs, KEY=VALUE goes to all
runs, and each --variant is a row more: DSN with these settings. After --minutes runs are stopped, and have the score of
their last epoch. Finished runs in DIR are not repeated. WIDEFIELD names another command.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import statistics
import subprocess
import time

WIDEFIELD = os.environ.get("WIDEFIELD", str(pathlib.Path(__file__).resolve().parent.parent / "build/widefield"))
NONE = {"reconstruction": 0, "difference": 0, "similarity": 0}

CASES = {
    "digits": {
        "synth": ["digits", "--count", "6000", "--size", "20x20", "--seed", "1"],
        "source": "source", "target": "noise", "score": "accuracy", "norm": False,
        "model": {"name": "dsn_conv", "head": "classes", "norm": "instance", "base": 12, "depth": 2, "code": 48,
                  "targets": 1},
        "data": {},
        "train": {"batch": 32, "epochs": 60, "optimizer": "adam", "lr": 0.002, "adapt_from": 300},
        "dann": {"similarity": "dann", "adapt_over": 1000, "weights": {**NONE, "similarity": 0.3}},
        "dsn": {"similarity": "mmd", "weights": {"reconstruction": 1, "difference": 0.05, "similarity": 2}},
    },
    "tissue": {
        "synth": ["tissue", "--count", "120", "--size", "128", "--seed", "1"],
        "source": "source", "target": "blue", "score": "mean_iou", "norm": True,
        "model": {"name": "dsn_conv", "head": "segments", "base": 8, "depth": 3, "targets": 1},
        "data": {"crop": [64, 64], "validation": 0.2, "repeat": 4, "augment": ["flip", "rot90"]},
        "train": {"batch": 8, "epochs": 6, "optimizer": "adam", "lr": 0.002},
        "dann": {"similarity": "dann", "weights": {**NONE, "similarity": 0.25}},
        "dsn": {"similarity": "dann", "weights": {"reconstruction": 1, "difference": 0.05, "similarity": 0.25}},
    },
}
ROWS = {"source": "source only", "statistics": "source only, target's statistics", "dann": "reversal alone (DANN)",
        "dsn": "DSN", "target": "target only"}


STOPPED = 75


def run(*arguments, until=None):
    """What it prints; it is stopped at the time `until`, if any."""
    with subprocess.Popen([WIDEFIELD, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env={**os.environ, "OMP_NUM_THREADS": "1"}) as process:
        try:
            out, err = process.communicate(timeout=until and max(1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.terminate()
            out, err = process.communicate()
    if process.returncode not in (0, STOPPED):
        raise SystemExit(f"widefield {' '.join(arguments)}\n{err}")
    return out


def last_epoch(folder):
    with open(folder / "log.jsonl", encoding="utf-8") as log:
        epochs = [e for e in map(json.loads, log) if e["event"] == "epoch"]
    return epochs[-1] if epochs else None


def draw(out, case):
    folders = {}
    for domain in (case["source"], case["target"]):
        folders[domain] = out / "data" / f"{case['synth'][0]}-{domain}"
        if not folders[domain].exists():
            kind, *options = case["synth"]
            run("data", "synth", kind, "--out", str(folders[domain]), "--domain", domain, *options, "--quiet")
    return folders


def config(case, row, folders, seed, scale):
    """All settings of one run; the first domain is the one whose labels it is trained with."""
    source, target = str(folders[case["source"]]), str(folders[case["target"]])
    adapt = case[row] if row in ("dann", "dsn") else {"weights": NONE}
    train = {**case["train"], "seed": seed, "samples": 0, **adapt}
    train["epochs"] = max(1, round(scale * train["epochs"]))
    return {"model": case["model"],
            "data": {**case["data"], "domains": [target, source] if row == "target" else [source, target]},
            "train": train}


def score(out, case, row, folders, seed, args):
    """Scores by row; a run without adaptation has two where it has running statistics of each domain."""
    variant = row.split() if row not in ROWS else []
    folder = out / f"{case['synth'][0]}-{'_'.join(variant) or row}-{seed}"
    known = folder / "scores.json"
    if known.exists():
        return json.loads(known.read_text())
    if folder.exists():
        raise SystemExit(f"'{folder}' is there, but did not come to its end: remove it")
    path = out / f"{folder.name}.yaml"
    path.write_text(json.dumps(config(case, "dsn" if variant else row, folders, seed, args.scale)))
    more = ["--device", args.device, "--threads", "1", "--quiet", "--json"]
    run("train", str(path), "--out", str(folder), *args.keys, *variant, *more, until=args.until)
    epoch, name = last_epoch(folder), case["score"]
    if not epoch:
        return {}
    scores = {row: (epoch["val"] if row == "target" else epoch["domains"][0])[name]}
    if row == "source" and case["norm"]:
        scores["statistics"] = scores["source"]
        checkpoint = str(folder / "checkpoints" / "last.safetensors")
        plain = run("eval", checkpoint, str(folders[case["target"]]), "--part", "valid", "model.domain=0", *more)
        scores["source"] = json.loads(plain)[name]
    known.write_text(json.dumps(scores))
    print(f"{folder.name}, {epoch['epoch']} epochs: " + ", ".join(f"{ROWS.get(k, k)} {v:.3f}" for k, v in scores.items()), flush=True)
    return scores


def table(name, case, scores):
    """scores: row -> seed -> number."""
    print(f"\n{name}: {case['source']} to {case['target']}, {case['score']} of the target\n")
    print("| | mean | spread | share of the gap |\n|---|---|---|---|")
    for row in [r for r in ROWS if r in scores] + [r for r in scores if r not in ROWS]:
        all_seeds, label = scores[row], ROWS.get(row, "DSN, " + row)
        shares = [(v - scores["source"][s]) / (scores["target"][s] - scores["source"][s])
                  for s, v in all_seeds.items() if s in scores.get("source", {}) and s in scores.get("target", {})]
        share = f"{statistics.mean(shares):.2f} ({min(shares):.2f} to {max(shares):.2f})" if shares else ""
        values = list(all_seeds.values())
        print(f"| {label} | {statistics.mean(values):.3f} | {min(values):.3f} to {max(values):.3f} | {share} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--case", default="digits,tissue")
    parser.add_argument("--only", default="source,dann,dsn,target")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--variant", action="append", default=[])
    parser.add_argument("keys", nargs="*")
    parser.add_argument("--minutes", type=float)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    cases = {name: CASES[name] for name in args.case.split(",")}
    folders = {name: draw(args.out, case) for name, case in cases.items()}
    args.until = args.minutes and time.monotonic() + 60 * args.minutes
    tasks = [(name, row, seed) for seed in range(1, args.seeds + 1) for name in cases
             for row in [r for r in args.only.split(",") if r] + args.variant]
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        done = list(pool.map(lambda t: score(args.out, cases[t[0]], t[1], folders[t[0]], t[2], args), tasks))
    for name, case in cases.items():
        scores = {}
        for (of, _, seed), one in zip(tasks, done):
            for row, value in one.items() if of == name else ():
                scores.setdefault(row, {})[seed] = value
        table(name, case, scores)


main()
