import logging
import os
import re
import signal
import threading
import time

import numpy as np
import pytest

import widefield
from widefield import arrays


def test_plan_has_memory_and_messages_of_a_cut_step():
    whole = widefield.plan("unet", (1, 3, 64, 64), base=4, depth=2)
    cut = widefield.plan("unet", (1, 3, 64, 64), base=4, depth=2, mesh="space=2x2")
    assert (whole.ranks, whole.messages, cut.ranks, cut.mesh) == (1, 0, 4, "space=2x2")
    assert cut.parameters == whole.parameters
    assert cut.messages > 0 and cut.fetched > 0
    assert max(cut.rank_bytes) == cut.bytes < whole.bytes
    assert len(cut.rank_seconds) == 4


def test_explain_lists_steps():
    with widefield.Session("unet", base=4, depth=2, mesh="space=2x1") as session:
        text = session.explain((1, 3, 32, 32), rank=1)
    assert "enc0.conv0" in text


def test_verify_compares_with_one_rank():
    found = widefield.verify("unet", (1, 3, 32, 32), base=4, depth=2, mesh="space=2x1")
    assert found and found.same
    assert 0 <= found.gradients < 1e-4


def test_a_mesh_that_does_not_fit_says_so():
    with pytest.raises(widefield.FitError):
        widefield.plan("unet", (1, 3, 128, 128), base=4, depth=2, memory_limit="100KiB")
    with pytest.raises(widefield.UsageError, match="unet"):
        widefield.plan("unett", (1, 3, 64, 64))


def test_a_closed_session_is_refused():
    session = widefield.Session("unet")
    session.close()
    session.close()
    with pytest.raises(widefield.UsageError, match="closed"):
        session.plan((1, 3, 32, 32))


def test_messages_go_to_the_logger(caplog, squares):
    with caplog.at_level(logging.DEBUG, logger="widefield"):
        with widefield.Session("unet", base=4, depth=1) as session:
            session.verify((1, 3, 32, 32))
    assert all(record.name == "widefield" for record in caplog.records)


def test_html_of_a_plan_is_a_table():
    shown = widefield.plan("unet", (1, 3, 32, 32), base=4, depth=1, mesh="data=1,space=2x1")._repr_html_()
    assert len(re.findall("<tr>", shown)) == 3
    assert "space=2x1" in shown


def test_ctrl_c_ends_a_plan_of_many_ranks():
    """It would take many seconds; a signal comes after a half."""
    with widefield.Session("unet", base=8, mesh="space=24x24") as session:
        began = time.monotonic()
        timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            while time.monotonic() - began < 60:  # a fast machine plans it again
                session.plan((1, 3, 6144, 6144))
        timer.join()
        assert time.monotonic() - began < 30
        assert session.plan((1, 3, 768, 768)).ranks == 576  # the session goes on


def test_a_stop_ends_the_call_of_another_thread():
    with widefield.Session("unet", base=8, mesh="space=24x24") as session:
        caught = []

        def plan():
            try:
                while True:
                    session.plan((1, 3, 6144, 6144))
            except widefield.StoppedError as error:
                caught.append(error)

        thread = threading.Thread(target=plan)
        thread.start()
        while thread.is_alive():  # a stop that comes between two calls is nobody's
            time.sleep(0.2)
            widefield.session.lib.wf_session_stop(session.handle)
        assert "stopped on request" in str(caught[0])


class OnGpu:
    """Host memory that says it is a GPU's, to see what is asked of a producer."""

    def __init__(self, array):
        self.array, self.streams = array, []

    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, stream=None):
        self.streams.append(stream)
        return self.array.__dlpack__()


def test_an_array_of_a_gpu_is_taken_where_it_is_behind_its_stream():
    memory = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    given = OnGpu(memory)
    assert arrays.is_on_gpu(given) and not arrays.is_on_gpu(memory)
    there = arrays.DeviceArray(given)
    assert (there.pointer, there.shape, there.size) == (memory.ctypes.data, (2, 3, 4), 24)
    assert given.streams == [1]  # CUDA's default stream, which the library waits for
    part = arrays.DeviceArray(OnGpu(memory[1:]))
    assert part.pointer == memory[1:].ctypes.data and part.size == 12
    for wrong in (memory[:, :, ::2], memory.astype(np.float64)):
        with pytest.raises(widefield.UsageError, match="contiguous|float32"):
            arrays.DeviceArray(OnGpu(wrong))
    with widefield.Session("unet", base=4, depth=1) as session, widefield.Exec(session, (1, 3, 16, 16)) as function:
        with pytest.raises(widefield.UsageError, match="host memory"):  # on the CPU it has to come through the host
            function.forward(given)
