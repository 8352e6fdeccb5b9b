"""CERMET_CHECK=1: the first use of a kernel is compared with the unfused graph on the live tensors, and refused on a
mismatch.

What a region replaces is kept as a graph of its own, operands to results. The region becomes `cermet_v1::checked_*`
ops, in Python, which launch its kernels. The first launch in a process of a kernel (region, device, inputs that want a
gradient; forward and backward apart) also runs the kept graph twice, as it is and in float64. Against float64 the
kernel's error may be 2 x the unfused graph's and one unit in the last place, by the norm of each tensor. Otherwise a
warning says so, `cermet.counters()["refused"]` counts it and the region runs unfused from then on.

Every launch of a forward looks at its labels first (labels.py): one that is no class raises IndexError, on a GPU too.

For finding faults, not for speed: every call goes through Python, and all operands are kept for the backward.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from .. import locks
from ..counting import count
from ..errors import Error
from ..graph.decision import Region
from ..ops import library, regions
from ..targets import devices
from .comparison import Mismatch, compare
from .unfused import Unfused, extract

_log = logging.getLogger("cermet")


@dataclasses.dataclass(frozen=True)
class Site:
    """A place in a graph where a region runs."""

    key: int
    pattern: str
    source: str
    unfused: Unfused


class _Record:
    """The sites of this process, which kernels were checked, and which regions are refused on which device."""

    def __init__(self) -> None:
        self.lock = locks.lock()
        self.sites: dict[int, Site] = {}
        self.checked: set[tuple[Any, ...]] = set()
        self.refused: set[tuple[int, torch.device]] = set()

    def first(self, *kernel: Any) -> bool:
        """Whether a kernel is to be checked now."""
        with self.lock:
            if kernel in self.checked:
                return False
            self.checked.add(kernel)
            return True


_record = _Record()


def call(module: Any, region: Region) -> tuple[Any, tuple[Any, ...]]:
    """The op and its arguments that stand for a region whose nodes are still in the graph of `module`."""
    try:
        unfused = extract(module, region)
    except Error as reason:
        _log.warning("%s (%s) is not checked: %s", region.pattern, region.source, reason)
        return regions.region_op(len(region.operands), len(region.results)), (*region.operands, region.key)
    # A number by content, as torch's caches may keep a graph for another process.
    text = f"{region.key}\n{region.source}\n{unfused.module.graph}\n{unfused.autocast}"
    number = library.text_key(text)
    with _record.lock:
        _record.sites[number] = Site(region.key, region.pattern, region.source, unfused)
    arguments = (list(region.operands), list(unfused.others), list(unfused.sizes), number)
    return _regions[len(region.results)], arguments


def _site(number: int) -> Site:
    with _record.lock:
        if number not in _record.sites:
            raise Error(
                f"no site with number {number} is known in this process: the graph that uses it was compiled under "
                "CERMET_CHECK=1 elsewhere; clear torch's compile caches"
            )
        return _record.sites[number]


# --- Running ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _autograd_allowed() -> Iterator[None]:
    """An op's implementation runs below autograd; within this, operations are recorded again."""
    keys = torch._C._functionality_to_backend_keys(torch._C.DispatchKey.AutogradFunctionality)
    included, excluded = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
    for key in [*keys, torch._C.DispatchKey.ADInplaceOrView]:
        excluded = excluded.remove(key)
    with torch._C._ForceDispatchKeyGuard(included, excluded), torch.enable_grad():
        yield


def _unfused_gradients(
    site: Site,
    inputs: Sequence[torch.Tensor],
    others: Sequence[torch.Tensor],
    sizes: Sequence[int],
    cotangents: Sequence[torch.Tensor],
    wanted: Sequence[bool],
    dtype: torch.dtype | None,
) -> list[torch.Tensor]:
    """The unfused graph's gradient of each input that `wanted` marks (of the others an empty tensor), in the floating
    type `dtype` or as traced."""
    with _autograd_allowed():
        given = [site.unfused.cast(tensor, dtype).detach().requires_grad_(want) for tensor, want in zip(inputs, wanted)]
        results = site.unfused.run(given, others, sizes, dtype)
        pairs = [(result, cotangent) for result, cotangent in zip(results, cotangents) if result.requires_grad]
        leaves = [tensor for tensor, want in zip(given, wanted) if want]
        if pairs:
            outputs = [result for result, _ in pairs]
            seeds = [cotangent.to(result.dtype) for result, cotangent in pairs]
            found = iter(torch.autograd.grad(outputs, leaves, seeds, allow_unused=True))
        else:
            found = iter([None] * len(leaves))
    gradients = []
    for tensor, want in zip(given, wanted):
        gradient = next(found) if want else tensor.new_empty(0)
        gradients.append(torch.zeros_like(tensor) if gradient is None else gradient.detach())
    return gradients


def _forward(
    inputs: list[torch.Tensor],
    others: list[torch.Tensor],
    sizes: list[int],
    number: int,
    key: int,
    results: int,
    wanted: list[bool],
) -> list[torch.Tensor]:
    site = _site(number)
    if site.unfused.labels is not None and not devices.recorded(inputs[0].device):
        site.unfused.labels.check([*inputs, *others, *sizes], f"{site.pattern} at {site.source or 'an unknown place'}")
    values = list(regions.launch(key, inputs))

    def run(dtype: torch.dtype | None) -> list[torch.Tensor]:
        return site.unfused.run(inputs, others, sizes, dtype)

    if not _refused(site, inputs[0].device, (key, *wanted), "forward", values[:results], run):
        return values
    return [_like(value, ours) for value, ours in zip(run(None), values)] + values[results:]


def _backward(
    arguments: list[torch.Tensor],
    inputs: list[torch.Tensor],
    others: list[torch.Tensor],
    cotangents: list[torch.Tensor],
    sizes: list[int],
    number: int,
    key: int,
    of: list[int],
    wanted: list[bool],
) -> list[torch.Tensor]:
    site = _site(number)
    values = list(regions.launch(key, arguments))

    def run(dtype: torch.dtype | None) -> list[torch.Tensor]:
        gradients = _unfused_gradients(site, inputs, others, sizes, cotangents, wanted, dtype)
        return [gradients[index] for index in of]

    if not _refused(site, inputs[0].device, (key, *wanted), "backward", values, run):
        return values
    return [_like(value, ours) for value, ours in zip(run(None), values)]


def _like(value: torch.Tensor, ours: torch.Tensor) -> torch.Tensor:
    """`value` with the type and layout that the op promised, in memory of its own."""
    return torch.empty_like(ours).copy_(value)


def _refused(
    site: Site,
    device: torch.device,
    kernel: tuple[int, ...],
    direction: str,
    ours: Sequence[torch.Tensor],
    run: Any,
) -> bool:
    """Whether the region runs unfused on this device; checks it if this is the first run of `kernel`. `run` is the
    unfused graph in a floating type, or as traced where that is None."""
    place = (site.key, device)
    if place in _record.refused:
        return True
    if devices.recorded(device) or not _record.first(site.key, device, kernel):
        return False
    mismatches = compare(ours, run)
    if mismatches is None:
        _log.warning("%s (%s) is not checked: its %s runs in no wider type", site.pattern, site.source, direction)
        return False
    count("checked")
    if not mismatches:
        return False
    with _record.lock:
        _record.refused.add(place)
    count("refused")
    _warn(site, device, direction, mismatches)
    return True


def _warn(site: Site, device: torch.device, direction: str, mismatches: list[Mismatch]) -> None:
    what = "result" if direction == "forward" else "gradient"
    _log.warning(
        "%s at %s is refused on %s and runs unfused from now on: the first %s differs from the unfused graph: %s",
        site.pattern,
        site.source or "an unknown place",
        device,
        direction,
        "; ".join(f"{what} {mismatch}" for mismatch in mismatches),
    )


# --- Ops -------------------------------------------------------------------------------------------------------------


class _Checked(torch.autograd.Function):
    """A checked region with its derived gradient. Unlike a region's own, it keeps every operand."""

    @staticmethod
    def forward(
        ctx: Any,
        derived: regions.Gradient,
        others: list[torch.Tensor],
        sizes: list[Any],
        number: int,
        wanted: list[bool],
        *inputs: torch.Tensor,
    ) -> Any:
        arguments = (list(inputs), others, sizes, number, derived.forward, derived.outputs, wanted)
        values = _ops.checked_forward.default(*arguments)
        ctx.save_for_backward(*inputs, *others, *derived.kept(inputs, values))
        ctx.derived, ctx.sizes, ctx.number, ctx.wanted = derived, sizes, number, wanted
        ctx.split = (len(inputs), len(inputs) + len(others))
        return tuple(values[: derived.outputs])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *cotangents: torch.Tensor) -> Any:
        derived, saved, (first, second) = ctx.derived, list(ctx.saved_tensors), ctx.split
        arguments = derived.arguments(saved[second:], cotangents.__getitem__)
        of = [inputs[0] for inputs in derived.backward_outputs]
        operands = (saved[:first], saved[first:second], list(cotangents))
        results = _ops.checked_backward.default(
            arguments, *operands, ctx.sizes, ctx.number, derived.backward, of, ctx.wanted
        )
        return None, None, None, None, None, *derived.of_inputs(results, first)


def _checked_region(inputs: list[torch.Tensor], others: list[torch.Tensor], sizes: list[Any], number: int) -> Any:
    wanted = [tensor.requires_grad for tensor in inputs]
    others = [tensor.detach() for tensor in others]
    key = _site(number).key
    if torch.is_grad_enabled() and any(wanted):
        derived = regions.gradient(key, tuple(wanted), regions.input_orders(inputs, wanted), inputs[0].device)
        values = _Checked.apply(derived, others, sizes, number, wanted, *inputs)
    else:
        results = len(regions.signature(key, inputs[0].device).outputs)
        values = tuple(_ops.checked_forward.default(inputs, others, sizes, number, key, results, []))
    return values[0] if len(values) == 1 else values


def _fake_forward(inputs: list[torch.Tensor], others: Any, sizes: Any, number: int, key: int, *_: Any) -> Any:
    made = regions.fake_launch(*inputs, key)
    return list(made) if isinstance(made, tuple) else [made]


def _fake_backward(
    arguments: list[torch.Tensor], inputs: Any, others: Any, cotangents: Any, sizes: Any, number: int, key: int, *_: Any
) -> Any:
    return _fake_forward(arguments, others, sizes, number, key)


def _define() -> tuple[torch.library.Library, dict[int, Any]]:
    ops = torch.library.Library(regions.NAMESPACE, "FRAGMENT")
    tags = (torch.Tag.pt2_compliant_tag,)
    rest = "Tensor[] others, SymInt[] sizes, int site"
    for outputs in range(1, regions.MAX_OUTPUTS + 1):
        ops.define(f"checked_region_{outputs}(Tensor[] inputs, {rest}) -> {regions.schema_of(outputs)}", tags=tags)
        ops.impl(f"checked_region_{outputs}", _checked_region, "CompositeImplicitAutograd")
    ops.define(f"checked_forward(Tensor[] inputs, {rest}, int key, int results, bool[] wanted) -> Tensor[]", tags=tags)
    ops.define(
        "checked_backward(Tensor[] arguments, Tensor[] inputs, Tensor[] others, Tensor[] cotangents, SymInt[] sizes, "
        "int site, int key, int[] of, bool[] wanted) -> Tensor[]",
        tags=tags,
    )
    for name, run, fake in (("forward", _forward, _fake_forward), ("backward", _backward, _fake_backward)):
        for backend in ("CPU", "CUDA"):
            ops.impl(f"checked_{name}", run, backend)
        ops.impl(f"checked_{name}", fake, "Meta")  # as in regions.py; register_fake reads sources
    namespace = getattr(torch.ops, regions.NAMESPACE)
    counts = range(1, regions.MAX_OUTPUTS + 1)
    return ops, {outputs: getattr(namespace, f"checked_region_{outputs}").default for outputs in counts}


_library, _regions = _define()
_ops = getattr(torch.ops, regions.NAMESPACE)
