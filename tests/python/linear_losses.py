"""A loss without logits through the C interface (cermet_linear_cross_entropy_*) on torch's memory: its graph text, a
product that a caller might bring, and what torch makes of the same options."""

from __future__ import annotations

import ctypes
import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from cermet import native
from cermet.ops import library
from cermet.targets import devices

NAMES = {row["code"]: row["array_name"] for row in native.facts()["element_types"]}
CODES = {getattr(torch, name): code for code, name in NAMES.items()}
GRAPH_NAMES = {row["code"]: row["graph_name"] for row in native.facts()["element_types"]}
IN_TYPE, IN_F32 = 1, 2  # a gradient


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("sizes", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("rank", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
    ]


Product = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(Tensor), ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p
)


class Options(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("gradients", ctypes.c_char_p),
        ("gradient_count", ctypes.c_uint64),
        ("budget", ctypes.c_uint64),
        ("product", Product),
        ("product_user", ctypes.c_void_p),
    ]


@dataclasses.dataclass(frozen=True)
class Case:
    """What a loss is of. `rows`: the symbols of the hidden state's leading dimensions."""

    columns: int
    width: int
    dtype: torch.dtype
    bias: torch.dtype | None = None
    labels: torch.dtype = torch.int64
    rows: tuple[str, ...] = ("n",)
    reduction: str = "mean"
    ignore_index: int = -100
    label_smoothing: float = 0.0
    softcap: float = 0.0
    z_loss: float = 0.0

    def text(self) -> str:
        wide = "f64" if self.dtype == torch.float64 else "f32"
        types = [
            tensor((*self.rows, self.width), self.dtype),
            tensor((self.columns, self.width), self.dtype),
            tensor(self.rows, self.labels),
        ]
        names = ["%hidden", "%weight", "%labels"]
        if self.bias is not None:
            types.append(tensor((self.columns,), self.bias))
            names.append("%bias")
        result = tensor(self.rows, torch.float32) if self.reduction == "none" else f"tensor<{wide}>"
        options = (
            f'reduction = "{self.reduction}", ignore_index = {self.ignore_index} : i64, '
            f"label_smoothing = {self.label_smoothing:e} : f64, softcap = {self.softcap:e} : f64, z_loss = {self.z_loss:e} : f64"
        )
        arguments = ", ".join(f"{name}: {kind}" for name, kind in zip(names, types))
        return (
            "module attributes {cermet.version = 1 : i64} {\n"
            f"  func.func @loss({arguments}) -> {result} {{\n"
            f"    %0 = cermet.linear_cross_entropy {', '.join(names)} {{{options}}} : {', '.join(types)} to {result}\n"
            f"    return %0 : {result}\n  }}\n}}\n"
        )

    def in_torch(
        self, hidden: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """In the types of its operands, from the logits on in f32, or all in f64."""
        logits = F.linear(hidden, weight)
        wide = torch.float64 if hidden.dtype == torch.float64 else torch.float32
        logits = logits.to(wide).reshape(-1, self.columns)
        if bias is not None:
            logits = logits + bias.to(wide)
        if self.softcap:
            logits = self.softcap * torch.tanh(logits / self.softcap)
        flat = labels.long().reshape(-1)
        losses = F.cross_entropy(
            logits, flat, ignore_index=self.ignore_index, label_smoothing=self.label_smoothing, reduction="none"
        )
        counts = flat != self.ignore_index
        if self.z_loss:
            losses = losses + torch.where(counts, self.z_loss * logits.logsumexp(-1) ** 2, 0.0)
        if self.reduction == "none":
            return losses.reshape(labels.shape)
        return losses.sum() / counts.sum() if self.reduction == "mean" else losses.sum()

    def inputs(self, sizes: Sequence[int], device: str = "cpu") -> list[torch.Tensor]:
        """Random ones; a fifth of the rows is ignored."""
        hidden = torch.randn(*sizes, self.width, dtype=torch.float32).to(self.dtype)
        weight = (torch.randn(self.columns, self.width) / math.sqrt(self.width)).to(self.dtype)
        labels = torch.randint(0, self.columns, tuple(sizes))
        labels[torch.rand(tuple(sizes)) < 0.2] = self.ignore_index
        bias = [torch.randn(self.columns).to(self.bias)] if self.bias is not None else []
        return [value.to(device) for value in (hidden, weight, labels.to(self.labels), *bias)]


def tensor(dims: Sequence[int | str], dtype: torch.dtype) -> str:
    """A type in graph text."""
    symbols = [f'"{dim}"' for dim in dims if isinstance(dim, str)]
    shape = "x".join([*("?" if isinstance(dim, str) else str(dim) for dim in dims), GRAPH_NAMES[CODES[dtype]]])
    return f"tensor<{shape}, #cermet.symbols<[{', '.join(symbols)}]>>" if symbols else f"tensor<{shape}>"


def described(tensors: Sequence[torch.Tensor]) -> Any:
    made = (Tensor * len(tensors))()
    for entry, value in zip(made, tensors):
        rank = max(value.dim(), 1)
        entry.data = value.data_ptr() or None
        entry.sizes, entry.strides = ((ctypes.c_int64 * rank)(*numbers) for numbers in (value.shape, value.stride()))
        entry.rank, entry.dtype = value.dim(), CODES[value.dtype]
    return made


class _Memory:
    """What torch takes as memory of a CUDA device."""

    def __init__(self, address: int, count: int) -> None:
        self.__cuda_array_interface__ = {"shape": (count,), "typestr": "|u1", "data": (address, False), "version": 2}


def viewed(given: Tensor, device: str) -> torch.Tensor:
    """torch's view of a tensor that a callback got."""
    dtype = getattr(torch, NAMES[given.dtype])
    sizes, strides = given.sizes[: given.rank], given.strides[: given.rank]
    count = (1 + sum((size - 1) * stride for size, stride in zip(sizes, strides))) * dtype.itemsize
    if device == "cpu":
        memory = torch.frombuffer((ctypes.c_uint8 * count).from_address(given.data), dtype=torch.uint8)
    else:
        memory = torch.as_tensor(_Memory(given.data, count), device=device)
    return memory.view(dtype).as_strided(sizes, strides)


def product_of(device: str, calls: list[tuple]) -> Any:
    """torch's product as a callback; notes (operation, [m, k, n], dtypes, whether strides are as promised)."""

    def multiply(user, name, tensors, operands, results, stream):
        left, right, into = (viewed(tensors[at], device) for at in range(3))
        fits = [
            1 in value.stride() and max(value.stride()) >= value.shape[value.stride().index(1)]
            for value in (left, right, into)
        ]
        calls.append((name.decode(), [*left.shape, right.shape[1]], [str(value.dtype)[6:] for value in (left, right, into)], all(fits)))
        assert (operands, results) == (2, 1)
        value = left.float() @ right.float()
        into.copy_(into.float() + value if name == b"matmul_accumulate" else value)
        return 0

    return Product(multiply)


class Loss:
    """A prepared one."""

    def __init__(
        self, text: str, gradients: bytes | None = None, budget: int = 0, product: Any = None, device: str = "cpu"
    ) -> None:
        self.library, self.handle, self.product = native.libcermet(), ctypes.c_void_p(), product
        self.device = device
        data = text.encode()
        options = Options(
            ctypes.sizeof(Options), gradients, len(gradients or b""), budget, product or Product(), None
        )
        native.check(
            self.library.cermet_linear_cross_entropy_prepare(
                library.context().handle,
                data,
                ctypes.c_size_t(len(data)),
                devices.target_of(torch.device(device)).encode(),
                0,
                ctypes.byref(options),
                ctypes.byref(self.handle),
            )
        )

    def __del__(self) -> None:
        self.library.cermet_linear_cross_entropy_destroy(self.handle)

    def workspace_size(self, tensors: Sequence[torch.Tensor]) -> int:
        size = ctypes.c_size_t()
        native.check(
            self.library.cermet_linear_cross_entropy_workspace_size(
                self.handle, described(tensors), len(tensors), ctypes.byref(size)
            )
        )
        return size.value

    def launch(self, tensors: Sequence[torch.Tensor]) -> None:
        """Its workspace is as large as asked for, poisoned, and must not be left."""
        size = self.workspace_size(tensors)
        memory = torch.full((size + 1024,), 0xFF, dtype=torch.uint8, device=self.device)  # NaN
        start = -memory.data_ptr() % 256 + 256
        stream = torch.cuda.current_stream().cuda_stream if self.device == "cuda" else 0
        native.check(
            self.library.cermet_linear_cross_entropy_launch(
                self.handle,
                ctypes.c_void_p(stream),
                described(tensors),
                len(tensors),
                ctypes.c_void_p(memory.data_ptr() + start),
                ctypes.c_size_t(size),
            )
        )
        around = torch.cat([memory[:start], memory[start + size :]])
        assert (around == 0xFF).all(), "memory around the workspace was written"


def poisoned(sizes: Sequence[int], dtype: torch.dtype, device: str = "cpu") -> torch.Tensor:
    return torch.full(tuple(sizes), float("nan"), dtype=dtype, device=device)
