"""`cermet.enable()` in a test: a function to compile by it, another library's pass, and everything put back."""

from __future__ import annotations

import pytest
import torch
from torch._inductor import config
from torch._inductor.custom_graph_pass import CustomGraphPass

import cermet
import graphs
from cermet import enabling

STAY = {"epilogue_fusion": True}  # an option of Inductor's, which changes nothing


@pytest.fixture(autouse=True)
def restored():
    """Inductor's configuration is what it was, whatever a test does."""
    names = [name for name in (enabling.SLOT, enabling.TIMING) if hasattr(config, name)]
    before = {name: getattr(config, name) for name in names}
    yield
    cermet.disable()
    for name, value in before.items():
        setattr(config, name, value)


def change(before: dict[str, int]) -> dict[str, int]:
    return {name: value - before[name] for name, value in cermet.counters().items()}


def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return graphs.rms_norm(x, weight)


def regions_of(function=norm, **settings) -> int:
    """How many regions `backend="inductor"` makes of a function of x and weight now."""
    torch._dynamo.reset()
    before = cermet.counters()
    x, weight = torch.randn(4, 32), torch.randn(32)
    with config.patch(force_disable_caches=True):  # or passes that have a uuid are not called for a graph found there
        ours = torch.compile(function, backend="inductor", fullgraph=True, **settings)(x, weight)
    torch.testing.assert_close(ours, function(x, weight), rtol=1e-4, atol=1e-5)
    return change(before)["regions"]


class Recorder(CustomGraphPass):
    """Another library's pass: it counts the graphs that it is given and the ops of ours in them."""

    def __init__(self) -> None:
        self.graphs = self.ours = 0

    def __call__(self, graph) -> None:
        self.graphs += 1
        self.ours += sum("cermet_v1" in str(node.target) for node in graph.nodes)

    def uuid(self) -> str:
        return "recorder"
