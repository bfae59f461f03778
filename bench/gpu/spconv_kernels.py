"""GPU time of spconv's own kernels in a training step of MinkUNet34C, by PyTorch's profiler: what is left of its step
if the host never made the GPU wait.

    cd FOLDER; python3 .../bench/gpu/spconv_kernels.py          FOLDER has sparse_spconv.py and sparse_scene.py
"""
import contextlib
import io
import json
import os
import sys

sys.path.insert(0, os.getcwd())
sys.argv = sys.argv[:1]
import sparse_spconv  # noqa: E402
import torch  # noqa: E402

LAYERS, WARMUP, STEPS = (2, 3, 4, 6, 2, 2, 2, 2), 3, 7


def quietly(rooms):
    with contextlib.redirect_stdout(io.StringIO()):
        sparse_spconv.run(LAYERS, rooms, "f16", STEPS)


for rooms in (1, 4):
    quietly(rooms)  # it tunes its kernels
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        quietly(rooms)
    total = sum(event.self_device_time_total for event in profile.key_averages())
    print(json.dumps(dict(who="spconv kernels", model="minkunet34c", rooms=rooms, precision="f16",
                          ms=round(total / 1e3 / (WARMUP + STEPS), 2))), flush=True)
