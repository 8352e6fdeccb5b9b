"""What `torch.compile(mode=..., options=...)` says to the backend."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection
from typing import Any, get_origin

from . import environment, native
from .errors import Error

REMAINDERS = ("auto", "aot", "inductor", "eager")
OURS = ("remainder", "strict", "mode", "autotune", "memory", "logits", "logits_bytes")
LOGITS = ("lazy", "keep")
_UNITS = {"": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
LOGITS_BYTES = native.limit("logits_bytes")
_GRAPHS = "triton.cudagraphs"  # what Inductor calls them


@dataclasses.dataclass(frozen=True)
class Keeping:
    """What a forward keeps (rematerialization): a value whose bytes are less than `price` times those that computing it
    again moves. Without a price, what torch's partitioner keeps. `products`: the part of a step's time that long ones
    may take again."""

    price: float | None
    products: float = 0.01


KEEPING = {"fast": Keeping(None), "auto": Keeping(0.25), "least": Keeping(0.02, products=1.0)}
# From the first on, where there is a bound, until it is held.
_LADDER = (KEEPING["auto"], Keeping(0.1), Keeping(0.1, 1.0), Keeping(0.06, 1.0), Keeping(0.04, 1.0), KEEPING["least"])


@dataclasses.dataclass(frozen=True)
class Options:
    """Settings of one call of the backend."""

    remainder: str  # one of REMAINDERS
    strict: bool  # a failure of Cermet's raises
    inductor: dict[str, Any]  # what a mode and keys of Inductor's set in its config
    autotune: bool = False  # regions are timed (timing.py)
    memory: str | int = "auto"  # a name of KEEPING, or a bound in bytes
    logits_bytes: int = LOGITS_BYTES  # of a loss, that may exist at once (loss/chunks.py)
    logits_bounded: bool = False  # the program says so, not the default
    logits: str = "lazy"  # one of LOGITS

    @property
    def keepings(self) -> tuple[Keeping, ...]:
        """Those to try, one after another."""
        return (KEEPING[self.memory],) if isinstance(self.memory, str) else _LADDER

    @property
    def lazy_logits(self) -> bool:
        """Logits that a graph returns beside its loss are made when they are read, which no recorded graph can."""
        return self.logits == "lazy" and not self.cuda_graphs

    @property
    def cuda_graphs(self) -> bool:
        return self.inductor.get(_GRAPHS, False)

    @property
    def may_call_directly(self) -> bool:
        """Whether the remainder may be direct calls, as far as the options say."""
        return self.remainder == "aot" or self.remainder == "auto" and not self.for_inductor_alone

    @property
    def for_inductor_alone(self) -> list[str]:
        """Given settings that no other remainder has."""
        return [name for name in self.inductor if name != _GRAPHS]


def parse(mode: str | None, options: dict[str, Any] | None) -> Options:
    """The settings. Raises cermet.Error where a key or a value is none of those that are known."""
    given = dict(options or {})
    strict = _truth("strict", given.pop("strict", environment.strict()))
    # A variable that cannot be understood is an error, strict or not.
    environment.check(), environment.compile_threads(), environment.log()
    remainder = _one_of("remainder", given.pop("remainder", "auto"), REMAINDERS)
    mode = given.pop("mode", mode)
    autotune = _truth("autotune", given.pop("autotune", False))
    memory = _memory(given.pop("memory", "auto"))
    logits = _one_of("logits", given.pop("logits", "lazy"), LOGITS)
    logits_bounded = "logits_bytes" in given
    logits_bytes = _size("logits_bytes", given.pop("logits_bytes", LOGITS_BYTES))
    inductor = _inductor(mode, given)
    parsed = Options(remainder, strict, inductor, autotune, memory, logits_bytes, logits_bounded, logits)
    if remainder == "aot" and parsed.for_inductor_alone:
        wrong = _as_given(parsed.for_inductor_alone[0], mode, given)
        raise Error(
            f"{wrong} is Inductor's, but the remainder is 'aot'; expected only {_listed()} and mode 'reduce-overhead'"
        )
    if remainder == "eager" and parsed.inductor:
        wrong = _as_given(next(iter(parsed.inductor)), mode, given)
        raise Error(f"{wrong} is Inductor's, but the remainder is 'eager'; expected only {_listed()}")
    return parsed


def _one_of(name: str, value: Any, expected: Collection[str]) -> str:
    if value not in tuple(expected):
        raise Error(f"option {name} is {value!r}, expected one of {', '.join(map(repr, expected))}")
    return value


def _memory(value: Any) -> str | int:
    if value in tuple(KEEPING):
        return value
    try:
        return bytes_of(value)
    except ValueError:
        names = ", ".join(map(repr, KEEPING))
        raise Error(f"option memory is {value!r}, expected one of {names} or a size like '12GB'") from None


def bytes_of(size: str | int) -> int:
    """`size` itself, or what is written as "12GB", "1.5 GiB", "800 MB". Raises ValueError for anything else."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMG]I?B)?\s*", size, re.IGNORECASE) if isinstance(size, str) else None
    number = int(float(found[1]) * _UNITS[(found[2] or "").upper()]) if found else size
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise ValueError(f"{size!r} is no size, expected bytes as a whole number or a text like '12GB'")
    return number


def _truth(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise Error(f"option {name} is {value!r}, expected True or False")
    return value


def _size(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise Error(f"option {name} is {value!r}, expected a whole number of bytes, at least 1")
    return value


def _inductor(mode: str | None, given: dict[str, Any]) -> dict[str, Any]:
    """A mode's options and the given ones, as patches of Inductor's config."""
    patches: dict[str, Any] = {}
    if mode not in (None, "default"):
        import torch._inductor

        modes = torch._inductor.list_mode_options()
        if not isinstance(mode, str) or mode not in modes:
            raise Error(f"mode is {mode!r}, expected one of {', '.join(map(repr, modes))}")
        patches.update(modes[mode])
    if given:
        from torch._inductor import config

        known = config.get_config_copy()
        for key, value in given.items():
            name = str(key).replace("-", "_")
            if name not in known:
                raise Error(f"unknown option {key!r}, expected {_listed()} or an option of Inductor's")
            wanted = config.get_type(name)
            if wanted is bool:
                _truth(key, value)
            elif isinstance(wanted, type) and get_origin(wanted) is None and not isinstance(value, wanted):
                raise Error(f"option {key} is {value!r}, expected a value of type {wanted.__name__}")
            patches[name] = value
    return patches


def _as_given(name: str, mode: str | None, given: dict[str, Any]) -> str:
    """How a patch was asked for."""
    for key in given:
        if str(key).replace("-", "_") == name:
            return f"option {key!r}"
    return f"mode {mode!r}"


def _listed() -> str:
    return ", ".join(map(repr, OURS))
