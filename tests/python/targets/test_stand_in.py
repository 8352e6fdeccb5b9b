"""GPUs that are not here: torch takes fake tensors of theirs, differentiates them, and attends by the kernels they have."""

from __future__ import annotations

import json
import subprocess
import sys

import cermet
import pytest
import torch
from cermet.targets import devices
from cermet.targets.attention import segments_obstacle
from cermet.targets.stand_in import standing_in
from cermet.targets.target import Target

# Queries, keys, type, a mask, causal, target -> what attention is. By torch's rules (ATen's sdp_utils.cpp).
CALLS = {
    "halves on sm_80": ([2, 4, 16, 64], [2, 4, 16, 64], "bfloat16", False, True, "sm_80", "flash"),
    "halves on sm_90": ([2, 4, 16, 64], [2, 4, 16, 64], "bfloat16", False, True, "sm_90", "cudnn"),
    "fewer heads of keys": ([2, 4, 16, 64], [2, 2, 16, 64], "float16", False, True, "sm_80", "flash"),
    "a width that flash pads": ([2, 4, 16, 20], [2, 4, 16, 20], "bfloat16", False, True, "sm_90", "flash"),
    "wide heads on sm_90": ([2, 4, 16, 256], [2, 4, 16, 256], "bfloat16", False, True, "sm_90", "cudnn"),
    "wider heads": ([2, 4, 16, 512], [2, 4, 16, 512], "bfloat16", False, True, "sm_90", "efficient"),
    "a mask on sm_80": ([2, 4, 16, 64], [2, 4, 16, 64], "bfloat16", True, False, "sm_80", "efficient"),
    "a mask on sm_90": ([2, 4, 16, 64], [2, 4, 16, 64], "bfloat16", True, False, "sm_90", "cudnn"),
    "a learned mask": ([2, 4, 16, 64], [2, 4, 16, 64], "bfloat16", "learned", False, "sm_90", "efficient"),
    "a mask of columns": ([2, 4, 16, 64], [2, 4, 16, 64], "bfloat16", "turned", False, "sm_90", "math"),
    "more keys": ([2, 4, 16, 64], [2, 4, 48, 64], "bfloat16", False, True, "sm_80", "efficient"),
    "f32": ([2, 4, 16, 64], [2, 4, 16, 64], "float32", False, True, "sm_90", "efficient"),
    "f32 with fewer heads of keys": ([2, 4, 16, 64], [2, 2, 16, 64], "float32", False, True, "sm_90", "math"),
    "gradients that sm_86 lacks": ([2, 4, 16, 200], [2, 4, 16, 200], "bfloat16", False, True, "sm_86", "efficient"),
}
PROBE = """
import json, sys, threading
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from cermet.ops import op_library
from cermet.targets.stand_in import standing_in
from cermet.targets.target import Target

class Seen(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(function.name())
        return function(*args, **kwargs or {})

found, threads = {}, set()
for name, (queries, keys, dtype, masked, causal, target, _) in json.loads(sys.argv[1]).items():
    with standing_in(Target.of(target), op_library.stand_in_for_cuda), FakeTensorMode(), Seen() as seen:
        seen.names = []
        dtype = getattr(torch, dtype)
        query, key = (torch.zeros(shape, dtype=dtype, device="cuda", requires_grad=True) for shape in (queries, keys))
        query.register_hook(lambda grad: threads.add(threading.current_thread()))
        mask = torch.ones(queries[2], keys[2], dtype=torch.bool, device="cuda") if masked else None
        mask = mask.to(dtype).requires_grad_() if masked == "learned" else mask.t() if masked == "turned" else mask
        result = torch.nn.functional.scaled_dot_product_attention(
            query, key, key, mask, is_causal=causal, enable_gqa=queries[1] != keys[1])
        result.float().sum().backward()
        assert result.shape == query.shape and query.grad.shape == query.shape and key.grad.device.type == "cuda"
        kernels = {each.split("product_")[1].split("_")[0] for each in seen.names if "scaled_dot_product" in each}
        found[name] = kernels.pop() if len(kernels) == 1 else "math" if not kernels else sorted(kernels)
# A thread of autograd's would still hold modes, and the process could not end.
assert threads == {threading.main_thread()}, threads
print(json.dumps(found))
"""


def test_attention_is_the_kernel_that_torch_takes_on_the_target():
    ran = subprocess.run([sys.executable, "-c", PROBE, json.dumps(CALLS)], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert json.loads(ran.stdout) == {name: call[-1] for name, call in CALLS.items()}


def test_a_torch_that_cannot_be_told_is_an_error():
    with pytest.raises(cermet.Error, match="takes no fake tensors of a GPU that is not here: it has other names"):
        with standing_in(Target.of("sm_90"), lambda: "it has other names"):
            pytest.fail("it went on")


def test_the_host_needs_no_stand_in():
    with standing_in(Target.of("host"), lambda: pytest.fail("it was told")):
        assert torch.cuda.is_available() == (torch.cuda.device_count() > 0)


def test_a_captured_target_answers_for_its_kind_of_device_alone():
    target = Target.of("host:x86-64-v3")
    with devices.capturing(target):
        assert devices.target_of(torch.device("cpu")) == "host:x86-64-v3" and devices.captured() is target
    assert devices.target_of(torch.device("cpu")) == "host" and devices.captured() is None
    with devices.capturing(Target.of("sm_100")):
        assert devices.target_of(torch.device("cuda")) == "sm_100" and devices.target_of(torch.device("cpu")) == "host"
        assert devices.indexed(torch.device("cuda")) == torch.device("cuda", 0)


def test_segments_are_flash_attentions_where_its_types_and_widths_are():
    def obstacle(name, dtype, width, ranged=False, drops=False):
        return segments_obstacle(Target.of(name), dtype, width, ranged, drops)

    assert obstacle("sm_90", torch.bfloat16, 128) == ""
    assert "float16 and bfloat16" in obstacle("sm_90", torch.float32, 128)
    assert "heads of 288" in obstacle("sm_90", torch.float16, 288)
    assert obstacle("host", torch.bfloat16, 128) == "it runs on cuda"
    assert obstacle("sm_90", torch.bfloat16, 256, drops=True) == ""
    assert "heads of 256 on sm_86" in obstacle("sm_86", torch.bfloat16, 256, drops=True)
    assert obstacle("sm_86", torch.bfloat16, 256) == "" and obstacle("sm_86", torch.bfloat16, 256, True) == ""
    assert "a width of 100" in obstacle("sm_90", torch.bfloat16, 100, ranged=True)
