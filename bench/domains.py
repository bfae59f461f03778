#!/usr/bin/env python3
"""Memory and time of a rank for one source and 1 to 7 target domains, by placement.

    bench/domains.py [--size 2,3,768,768] [--targets 1,2,3,5,7] [--run] [KEY=VALUE ...]

A worker per domain against a common worker for decoders and losses, against everything on one rank. Bytes are the
plan's, of the rank that needs most; with --run, `widefield bench` measures those held and the time of a step, one
thread a rank. WIDEFIELD names another command.
"""
import argparse
import json
import os
import pathlib
import subprocess

WIDEFIELD = os.environ.get("WIDEFIELD", str(pathlib.Path(__file__).resolve().parent.parent / "build/widefield"))


def ask(command, *arguments):
    done = subprocess.run([WIDEFIELD, command, "model.name=dsn_conv", "model.head=segments", *arguments, "--json",
                           "--quiet"], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="2,3,768,768")
    parser.add_argument("--targets", default="1,2,3,5,7")
    parser.add_argument("--run", action="store_true")
    parser.add_argument("keys", nargs="*")
    options = parser.parse_args()
    print(f"dsn_conv, {options.size} per domain; MiB of the rank that needs most" + (", ms a step" if options.run else ""))
    print(f"{'targets':>7}  {'placement':<16} {'ranks':>5} {'planned':>9}" + (f" {'held':>9} {'ms':>9}" if options.run else ""))
    for targets in map(int, options.targets.split(",")):
        for placement, ranks in (("one rank", 1), ("domain", targets + 1), ("domain_losses", targets + 2)):
            keys = [f"model.targets={targets}", f"data.size={options.size}", *options.keys]
            if ranks > 1:
                keys += ["--mesh", f"domain={ranks}", f"domain.placement={placement}"]
            plan = ask("plan", *keys)
            most = max(r["arena_bytes"] + r["param_bytes"] for r in plan["per_rank"])
            row = f"{targets:>7}  {placement:<16} {ranks:>5} {most / 2**20:>9.1f}"
            if options.run:
                run = ask("bench", *keys, "--threads", "1")
                row += f" {run['peak_bytes'] / 2**20:>9.1f} {run['ms']:>9.1f}"
            print(row, flush=True)


main()
