"""Tensors of a GPU, in and out. Needs a build with CUDA, PyTorch with CUDA, and a GPU."""

import numpy as np
import pytest

import widefield

torch = pytest.importorskip("torch")
if not torch.cuda.is_available() or "cuda" not in {device.name for device in widefield.devices()}:
    pytest.skip("no GPU here, or none in this build", allow_module_level=True)

SIZE = (2, 3, 64, 96)


def function(mesh="", **more):
    session = widefield.Session("unet", base=4, depth=2, device="cuda", mesh=mesh, **more)
    return session, widefield.Exec(session, SIZE, gradients=True)


@pytest.mark.parametrize("mesh", ["", "space=2x1", "data=2"])
def test_tensors_of_a_gpu_give_what_arrays_give(mesh):
    images = np.random.default_rng(1).normal(size=SIZE).astype(np.float32)
    session, net = function(mesh)
    with session, net:
        expected = net.forward(images)
        gradients = net.backward(2 * expected)
        result = net.forward(torch.from_numpy(images).cuda())
        assert result.is_cuda and result.dtype == torch.float32
        assert np.array_equal(result.cpu().numpy(), expected)
        found = net.backward(2 * result)
        assert set(found) == set(gradients)
        for name, gradient in gradients.items():
            assert found[name].is_cuda and tuple(found[name].shape) == gradient.shape
            np.testing.assert_allclose(found[name].cpu().numpy(), gradient, rtol=1e-5, atol=1e-6)
        half = torch.from_numpy(images).cuda().half().transpose(2, 3).contiguous().transpose(2, 3)
        again = net.forward(half)  # of another type and order: copied on the GPU
        np.testing.assert_allclose(again.cpu().numpy(), expected, rtol=0, atol=0.05 * np.abs(expected).max())


def test_what_another_stream_computes_is_waited_for():
    images = torch.randn(SIZE, device="cuda")
    session, net = function()
    with session, net:
        expected = net.forward(images).cpu()
        late = torch.zeros(SIZE, device="cuda")
        work = torch.randn(4096, 4096, device="cuda")
        torch.cuda.synchronize()
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(100):  # a tenth of a second
                work = work @ work / 64
            late.copy_(images)
            result = net.forward(late)
        assert torch.equal(result.cpu(), expected)


def test_memory_that_a_stream_still_reads_is_not_written():
    session, net = function()
    with session, net:
        images = torch.randn(SIZE, device="cuda")
        expected = net.forward(images).clone()
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            held = torch.full(tuple(expected.shape), 3.0, device="cuda")
            work = torch.randn(4096, 4096, device="cuda")
            for _ in range(100):
                work = work @ work / 64
            total = held.double().sum()
            del held  # the allocator may give its memory to the result
            result = net.forward(images)
        stream.synchronize()
        assert float(total) == 3.0 * expected.numel()
        assert torch.equal(result, expected)


def test_an_array_of_the_host_is_refused_by_the_c_interface():
    session, net = function()
    with session, net:
        host = np.zeros(SIZE, np.float32)
        from widefield import _calls
        from widefield._native import lib

        with pytest.raises(widefield.UsageError, match="host memory"):
            _calls.finish(lib.wf_exec_put_device, net.handle, b"image", host.ctypes.data, host.size)
        net.forward(host)  # and it goes on
