"""What Dynamo notes of a node beside its value: which line and which modules it came from."""

from __future__ import annotations

import re

import torch.fx as fx

from .calls import VALUE, Call

_LINES, _MODULES, _CALLED = "stack_trace", "nn_module_stack", "source_fn_stack"  # in a node's meta
_HELD = re.compile(r"\._(?:modules|parameters|buffers)\[(['\"])([^'\"\]]+)\1\]")


class Notes:
    """Those of one call's nodes, as another call's."""

    def __init__(self, traced: Call, call: Call) -> None:
        modules = zip(traced.module.modules(), call.module.modules())
        self._modules = {str(id(one)): str(id(other)) for one, other in modules}
        self._old, self._new = _HELD.sub(r".\2", traced.named.name), _HELD.sub(r".\2", call.named.name)

    def tell(self, made: fx.Node, node: fx.Node) -> None:
        made.meta.update((key, value) for key, value in node.meta.items() if key not in made.meta and key != VALUE)
        if lines := node.meta.get(_LINES):
            made.meta[_LINES] = lines
        if modules := node.meta.get(_MODULES):
            made.meta[_MODULES] = {self._number(key): (self._name(name), *rest)
                                   for key, (name, *rest) in modules.items()}
        if called := node.meta.get(_CALLED):
            made.meta[_CALLED] = [*called[:-1], (made.name, *called[-1][1:])]

    def _number(self, key: str) -> str:
        number, *times = key.split("@")
        return "@".join((self._modules.get(number, number), *times))

    def _name(self, name: str) -> str:
        return self._new + name.removeprefix(self._old) if name.startswith(self._old) else name


def stem(name: str) -> str:
    """A node's name without the number by which graphs tell equal ones apart."""
    return re.sub(r"_\d+$", "", name)
