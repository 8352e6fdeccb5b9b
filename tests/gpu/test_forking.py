"""A process that is forked from one that uses the GPU: it is told so at once, compiles for it, and the parent goes on."""
from __future__ import annotations

import os
import signal

import torch

import regions
from core import Core, Failure
from test_core import describe

SENTENCE = "CUDA cannot be used in this process: it was forked from one in which it was in use"


def refusal(call) -> str:
    try:
        call()
    except Failure as failure:
        return str(failure)
    return "done"


def test_a_child_is_told_and_its_parent_goes_on(core):
    program = core.program(regions.text("rms_norm", "bf16", 128, 1))
    x, w = torch.randn(4, 128, device="cuda").bfloat16(), torch.randn(128, device="cuda").bfloat16()
    y = torch.empty_like(x)
    tensors = [describe(tensor) for tensor in (x, w, y)]
    program.launch(0, tensors)
    torch.cuda.synchronize()
    before = y.clone()
    another = regions.text("rms_norm", "bf16", 256, 1)
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(120)
            said = [refusal(lambda: program.launch(0, tensors)), refusal(lambda: core.program(another, "sm_90")),
                    refusal(lambda: Core(cache="").program(another, "auto"))]  # one that opens the driver itself
            os.write(writable, "\n".join(said).encode())
        finally:
            os._exit(0)
    os.close(writable)
    with os.fdopen(readable) as pipe:
        said = pipe.read().splitlines()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(said) == 3 and all(line.startswith(SENTENCE) for line in said), said
    y.fill_(float("nan"))
    program.launch(0, tensors)
    torch.cuda.synchronize()
    assert torch.equal(y, before)
