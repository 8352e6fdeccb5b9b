"""Translations of calls that drop elements by random numbers."""

from __future__ import annotations

from collections.abc import Callable

from ...graph import seeded
from ...text import Value
from .call import Call, Refused


def _dropout(call: Call) -> Value:
    x, p, seed = call.float_tensor(call.argument(0, "x")), call.number(call.argument(1, "p")), call.argument(2, "seed")
    if x.type.element == "f64":
        raise Refused("an operand of f64")
    wide = call.cast(x, "f32")
    numbers = call.builder.convert("random", call.tensor(seed), x.type.with_element("i64"), call.name)
    kept = call.compare("ge", numbers, call.constant_like(seeded.threshold(p), numbers))
    factor = call.select(kept, call.constant_like(1 / (1 - p), wide), call.constant_like(0.0, wide))
    return call.cast(call.binary("mul", wide, factor), str(x.type.element))


TRANSLATIONS: dict[str, Callable[[Call], Value]] = {"seeded_dropout": _dropout}
