"""One training step of a causal language model, and its errors against the float64 truth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import truth


def step(call: Callable[..., Any], model: torch.nn.Module, text: torch.Tensor) -> dict[str, torch.Tensor]:
    """The loss and every gradient, by the parameter's name."""
    model.zero_grad(set_to_none=True)
    loss = call(input_ids=text, labels=text).loss
    loss.backward()
    return {"loss": loss.detach()} | {name: parameter.grad for name, parameter in model.named_parameters()}


def exact(model: torch.nn.Module, text: torch.Tensor) -> dict[str, torch.Tensor]:
    """What `step` gives in float64."""
    wide = truth.double(model)
    wide.gradient_checkpointing_disable()  # a recomputation would run outside of the mode
    with truth.Float64():
        return step(wide, wide, text)


class Errors:
    """Relative errors by tensor, one for each seed, of ours and of eager."""

    def __init__(self) -> None:
        self.ours: dict[str, list[float]] = {}
        self.eager: dict[str, list[float]] = {}

    def add(
        self, ours: dict[str, torch.Tensor], eager: dict[str, torch.Tensor], true: dict[str, torch.Tensor]
    ) -> None:
        assert ours.keys() == eager.keys() == true.keys()
        for errors, values in ((self.ours, ours), (self.eager, eager)):
            for name, value in values.items():
                errors.setdefault(name, []).append(truth.relative(value, true[name]))

    def check(self, dtype: torch.dtype) -> None:
        """The rule for numbers: the whole of it where there are seeds enough to tell."""
        enough = all(len(errors) >= truth.MEDIAN_SEEDS for errors in self.ours.values())
        rule = truth.assert_as_good_as_eager if enough else truth.assert_none_is_far_from_eager
        rule(self.ours, self.eager, dtype)
