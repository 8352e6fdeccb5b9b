"""Two GPUs in one process: the C interface and the ops launch on each, from one thread and from two, and what is of the
other device is named."""
from __future__ import annotations

import concurrent.futures

import pytest
import torch

import regions
from core import Tensor

pytestmark = pytest.mark.skipif(torch.cuda.device_count() < 2,
                                reason=f"two GPUs are needed, here are {torch.cuda.device_count()}")
DEVICES = ("cuda:0", "cuda:1")
ROWS, COLUMNS, LAUNCHES = 33, 1024, 200


def given(device: str) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(ROWS, COLUMNS, device=device), torch.randn(COLUMNS, device=device)


def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    x, weight = x.double(), weight.double()
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + regions.EPS) * weight


def close(ours: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> None:
    assert ours.device == x.device
    assert torch.allclose(ours.double(), norm(x, weight), rtol=1e-5, atol=1e-6)


def both_ways(work) -> None:
    """`work(device)` for each device by turns on this thread, then on a thread for each."""
    for device in DEVICES * 3:
        work(device)
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(lambda device=device: [work(device) for _ in range(LAUNCHES)]) for device in DEVICES]:
            done.result()


def described(tensor: torch.Tensor) -> Tensor:
    return Tensor(tensor.data_ptr(), tensor.shape, tensor.stride(), "f32")


@pytest.fixture(scope="module")
def programs(core):
    text = regions.text("rms_norm", "f32", COLUMNS)
    return {device: core.program(text, device=index) for index, device in enumerate(DEVICES)}


def test_the_c_interface_launches_on_each(programs):
    def work(device: str) -> None:
        x, weight = given(device)
        y = torch.full_like(x, float("nan"))
        stream = torch.cuda.current_stream(device)
        programs[device].launch(stream.cuda_stream, [described(x), described(weight), described(y)])
        stream.synchronize()
        close(y, x, weight)

    both_ways(work)


def test_a_current_device_stays(programs):
    x, weight = given("cuda:1")
    y = torch.empty_like(x)
    with torch.cuda.device(0):
        programs["cuda:1"].launch(torch.cuda.current_stream("cuda:1").cuda_stream, [*map(described, (x, weight, y))])
        assert torch.cuda.current_device() == 0
        assert torch.empty(1, device="cuda").device == torch.device("cuda:0")
    torch.cuda.synchronize("cuda:1")
    close(y, x, weight)


def test_checks_name_what_is_of_the_other(monkeypatch):
    import subprocess
    import sys

    # CERMET_CHECK is read once in a process.
    monkeypatch.setenv("CERMET_CHECK", "1")
    here = str(regions.__file__).rsplit("/", 1)[0]
    code = f"""
import sys
sys.path.insert(0, {here!r})
import core, regions, test_two_devices as two
import torch
program = core.Core(cache="").program(regions.text("rms_norm", "f32", two.COLUMNS), device=1)
x, weight = two.given("cuda:0")
try:
    program.launch(torch.cuda.current_stream("cuda:1").cuda_stream, [*map(two.described, (x, weight, torch.empty_like(x)))])
except core.Failure as failure:
    print(failure)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "(tensor 0) is on device 0, expected device 1" in ran.stdout, ran.stdout + ran.stderr


def test_ops_launch_on_each_and_name_what_is_of_the_other():
    pytest.importorskip("cermet")
    from cermet.ops import regions as ops

    key = ops.register(regions.text("rms_norm", "f32", COLUMNS))

    def work(device: str) -> None:
        x, weight = given(device)
        close(*ops.launch(key, [x, weight]), x, weight)

    both_ways(work)
    (x, _), (_, weight) = given("cuda:0"), given("cuda:1")
    with pytest.raises(RuntimeError, match="is on cuda:1, expected cuda:0"):
        ops.launch_op(2, 1)(x, weight, key)
    with pytest.raises(RuntimeError, match="is on cuda:0, expected cuda:1"):
        ops.launch_op(2, 1)(x.to("cuda:1"), weight.to("cuda:0"), key)


def test_a_compiled_module_steps_on_each():
    pytest.importorskip("cermet")

    def step(device: str) -> None:
        x, weight = (each.requires_grad_() for each in given(device))
        function = torch.compile(lambda x, w: torch.nn.functional.rms_norm(x, (COLUMNS,), w, regions.EPS), backend="cermet")
        y, cotangent = function(x, weight), torch.randn(ROWS, COLUMNS, device=device)
        ours = torch.autograd.grad(y, (x, weight), cotangent)
        truth = torch.autograd.grad(norm(x, weight), (x, weight), cotangent.double())
        close(y, x, weight)
        for gradient, expected in zip(ours, truth):
            assert (gradient.double() - expected).norm() <= 1e-5 * expected.norm()

    for device in DEVICES * 2:
        step(device)
