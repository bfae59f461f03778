#!/usr/bin/env python3
"""Reads the event file of a run with TensorBoard itself and compares it with log.jsonl.

Needs the package 'tensorboard'. WIDEFIELD names the command (default build/widefield).
"""
import glob
import json
import math
import os
import subprocess
import sys
import tempfile

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WIDEFIELD = os.environ.get("WIDEFIELD", os.path.join(ROOT, "build", "widefield"))


def main():
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("segmentation", "hostile"):
            check(os.path.join(folder, kind), kind)
    return 0


def check(run, kind):
    subprocess.run([sys.executable, f"{ROOT}/tests/fixtures/make_run.py", run, "--kind", kind, "--samples", "0"], check=True)
    for _ in range(2):  # written again, there is still one
        subprocess.run([WIDEFIELD, "report", run], check=True, stdout=subprocess.DEVNULL)
    files = glob.glob(f"{run}/events.out.tfevents.*")
    assert len(files) == 1, files
    with open(f"{run}/log.jsonl") as file:
        log = [json.loads(line) for line in file]
    steps = [e for e in log if e["event"] == "step"]
    epochs = [e for e in log if e["event"] == "epoch"]
    classes = log[0]["classes"]
    events = EventAccumulator(run, size_guidance={"scalars": 0})
    events.Reload()

    def same(tag, wanted):
        got = events.Scalars(tag)
        assert [e.step for e in got] == [s for s, _ in wanted], tag
        for e, (_, value) in zip(got, wanted):
            assert math.isclose(e.value, value, rel_tol=1e-6) or (math.isnan(e.value) and math.isnan(value)), (tag, e, value)
        times = [e.wall_time for e in got]
        assert times == sorted(times) and times[0] >= 1792750272, tag  # 2026-10-23T10:11:12Z

    same("train/loss", [(e["step"], e["loss"]) for e in steps])
    for tag, key in (("train/learning_rate", "lr"), ("speed/mpx_per_s", "mpx_per_s"), ("speed/step_ms", "ms"),
                     ("speed/compute_ms", "compute_ms"), ("speed/comm_ms", "comm_ms"), ("speed/input_ms", "input_ms")):
        same(tag, [(e["step"], e[key]) for e in steps])
    for tag, key in (("val/loss", "loss"), ("val/mean_iou", "mean_iou"), ("val/accuracy", "accuracy")):
        same(tag, [(e["step"], e["val"][key]) for e in epochs])
    for i, name in enumerate(classes):
        same(f"val_iou/{name}", [(e["step"], e["val"]["iou"][i]) for e in epochs])
    print(f"events: {kind}: TensorBoard finds {len(events.Tags()['scalars'])} curves, equal to the log")


sys.exit(main())
