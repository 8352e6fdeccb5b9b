"""What tests of the second stage look at."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.fx as fx

from cermet.remainder import direct


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[fx.Graph]]:
    """The graphs that ran, forward and backward."""
    graphs: list[fx.Graph] = []

    class Kept(direct.StraightLine):
        def __init__(self, graph: fx.GraphModule, *arguments: object, **keywords: object) -> None:
            graphs.append(graph.graph)
            super().__init__(graph, *arguments, **keywords)

    monkeypatch.setattr(direct, "StraightLine", Kept)
    with torch._functorch.config.patch(enable_autograd_cache=False):
        yield graphs
