"""What the tests themselves stand on: products that are hastened, and processes that are forked."""

from __future__ import annotations

import os

import pytest
import torch

import forked
import truth

M, K, N = 130, 260, 300  # more multiplications than where products are hastened


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_hastened_product_is_rounded_once(dtype):
    left, right, bias = (torch.randn(size).to(dtype) for size in ((M, K), (N, K), (N,)))
    operands = left, right.t(), bias
    calls = [
        lambda x, y, b: x @ y,
        lambda x, y, b: torch.addmm(b, x, y, beta=0.5, alpha=2),
        lambda x, y, b: torch.bmm(x[None], y[None]),
        lambda x, y, b: torch.baddbmm(b, x[None], y[None], beta=3, alpha=0.5),
        lambda x, y, b: torch.mm(x, y, out=x.new_empty(M, N)),
    ]
    for call in calls:
        found, exact = call(*operands), call(*(each.double() for each in operands))
        assert found.dtype == dtype and found.is_contiguous()
        assert truth.relative(found, exact) <= truth.spacing(dtype) / 2


@pytest.mark.parametrize(
    ("code", "status", "out", "err"),
    [
        ("import os, sys; print(sys.argv[1:], os.getcwd(), os.environ['OF'])", 0, "['a', 'b'] {folder} it\n", ""),
        ("import sys; print(1); sys.exit(3)", 3, "1\n", ""),
        ("import sys; sys.exit('why')", 1, "", "why\n"),
        ("raise ValueError('why')", 1, "", "ValueError: why\n"),
    ],
)
def test_a_forked_process_is_as_one_that_is_begun(code, status, out, err, tmp_path):
    for seed in ({}, {"PYTHONHASHSEED": "1"}):  # forked, and begun
        ran = forked.run("-c", code, "a", "b", env=os.environ | {"OF": "it"} | seed, cwd=tmp_path)
        assert (ran.returncode, ran.stdout) == (status, out.format(folder=tmp_path)), ran.stderr
        assert ran.stderr.endswith(err) and bool(ran.stderr) == bool(err), ran.stderr
