"""What a region takes and returns, and what its gradient does."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from .. import native


@functools.cache
def dtypes() -> dict[str, torch.dtype]:
    """By a plan's names (docs/plan-format.md)."""
    return {item["name"]: getattr(torch, item["array_name"]) for item in native.facts()["element_types"]}


@dataclasses.dataclass(frozen=True)
class Port:
    """An input or output of a region; a dimension is a number or a symbol's name."""

    name: str
    dtype: torch.dtype
    dims: tuple[int | str, ...]


@dataclasses.dataclass(frozen=True)
class Signature:
    name: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]

    @staticmethod
    def of(plan: dict[str, Any]) -> Signature:
        ports: dict[str, list[Port]] = {"input": [], "output": []}
        for value in plan["values"]:
            if value["kind"] in ports:
                ports[value["kind"]].append(Port(value["name"], dtypes()[value["dtype"]], tuple(value["dims"])))
        return Signature(plan["name"], tuple(ports["input"]), tuple(ports["output"]))


@dataclasses.dataclass(frozen=True)
class Gradient:
    """docs/plan-format.md, "a gradient", with both texts registered."""

    forward: int  # keys
    backward: int
    outputs: int
    saved: int
    backward_inputs: tuple[tuple[str, int], ...]
    backward_outputs: tuple[tuple[int, ...], ...]

    def kept(self, inputs: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """What the backward reads of the forward's inputs and of its values, outputs and saved ones."""
        sources = {"input": inputs, "output": values[: self.outputs], "saved": values[self.outputs :]}
        return [sources[origin][index] for origin, index in self.backward_inputs if origin in sources]

    def constant(self) -> list[int]:
        """The outputs that no gradient depends on: the backward asks for no cotangent of theirs."""
        asked = {index for origin, index in self.backward_inputs if origin == "cotangent"}
        return [index for index in range(self.outputs) if index not in asked]

    def arguments(
        self, kept: Iterable[torch.Tensor], cotangent: Callable[[int], torch.Tensor]
    ) -> list[torch.Tensor]:
        """The backward's inputs; `cotangent`: of an output by its number."""
        rest = iter(kept)
        return [cotangent(index) if origin == "cotangent" else next(rest) for origin, index in self.backward_inputs]

    def of_inputs(self, results: Sequence[torch.Tensor | None], inputs: int) -> list[torch.Tensor | None]:
        """The gradient of each of so many inputs, from the backward's results."""
        places = {place: result for one, result in zip(self.backward_outputs, results) for place in one}
        return [places.get(place) for place in range(inputs)]
