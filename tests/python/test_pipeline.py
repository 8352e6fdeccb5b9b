"""One order of the work on a graph: what is explained is what is done, and what a pass has no work for is left alone."""

from __future__ import annotations

import logging

import pytest
import torch
import torch.fx as fx
import torch.nn.functional as F

import graphs
from cermet import backend, environment, inspection, options, pipeline
from cermet.fusing import gains, matches
from cermet.fusing.gains import Measured
from cermet.graph import nodes
from cermet.graph.edit import copy_of
from cermet.graph.snapshots import Snapshot
from cermet.ops import preparation
from cermet.remainder import choice, direct
from cermet.report import output
from cermet.records import Settings
from tiny_models import FAMILIES, MODES


def inputs_of(module: fx.GraphModule) -> list:
    return [nodes.example(node) for node in module.graph.nodes if node.op == "placeholder"]


@pytest.fixture
def done(monkeypatch):
    """What the backend says that it did with a graph, and the graph; nothing is compiled."""
    monkeypatch.setenv("CERMET_EXPLAIN", "1")
    prepared = preparation.Preparation
    monkeypatch.setattr(preparation, "Preparation", lambda keys: prepared(list(keys)[:0]))
    monkeypatch.setattr(choice, "run", lambda module, *_: (module.forward, []))
    monkeypatch.setattr(direct, "compile", lambda *_, **__: None)
    told = []
    monkeypatch.setattr(output, "report", lambda found, _: told.append(found))

    def compiled(module: fx.GraphModule, remainder: str):
        copy = copy_of(module)
        backend.compile(copy, inputs_of(module), options={"remainder": remainder})
        return told.pop(), copy

    return compiled


def traced(call) -> list[fx.GraphModule]:
    found = []

    def keep(module, _):
        found.append(copy_of(module))
        return module.forward

    with call.context:
        torch.compile(call.model, backend=keep)(**call.arguments)
    return found


def same(module: fx.GraphModule, remainder: str, done) -> None:
    told = inspection.explained(module, inputs_of(module), options.parse(None, {"remainder": remainder}))
    found, rewritten = done(module, remainder)
    for name in ("places", "masks", "near_misses", "foreign", "left", "failures", "remainders", "counts", "graphs"):
        assert getattr(told, name) == getattr(found, name), (remainder, name)
    assert [place.at for place in told.places] == [place.at for place in found.places]
    targets = [str(node.target) for part in nodes.modules(rewritten) for node in part.graph.nodes]
    heads_and_regions = [target for target in targets if "cermet_v1" in target]
    assert len(heads_and_regions) == len(told.places), (remainder, targets)


CASES = [(family, "bf16") for family in FAMILIES] + [("Llama", mode) for mode in MODES if mode != "bf16"]


@pytest.mark.parametrize(("family", "mode"), CASES)
def test_what_is_explained_is_what_the_backend_does(family, mode, done):
    for module in traced(MODES[mode].call(family)):
        for remainder in options.REMAINDERS:
            same(module, remainder, done)


@pytest.mark.parametrize("remainder", options.REMAINDERS)
def test_what_does_not_gain_is_explained_so(monkeypatch, remainder, done):
    declined = Measured("glu", True, (1, 1 << 20), 0, 12.0, 10.0)
    monkeypatch.setattr(gains, "_TABLES", {"host": (declined,)})
    (module,) = traced(MODES["bf16"].call("Llama"))
    same(module, remainder, done)
    told = inspection.explained(module, inputs_of(module), options.parse(None, {"remainder": remainder}))
    missed = [miss.pattern for miss in told.near_misses if miss.condition.startswith("it does not gain on host")]
    inductor = told.remainders[0].startswith("inductor")
    assert missed == (["glu"] * 2 if inductor else []) and told.counts["glu"] == (0 if inductor else 2)


# --- Passes ----------------------------------------------------------------------------------------------------------


def test_every_pass_needs_what_is_promised_before():
    promised = set()
    for step in pipeline.PASSES:
        assert step.needs <= promised, step.name
        promised |= step.promises
    assert len({step.name for step in pipeline.PASSES}) == len(pipeline.PASSES)


def attention(query, key, value):
    return F.scaled_dot_product_attention(query, key, value)


def masked(query, key, value):
    places = torch.arange(query.shape[2])
    return F.scaled_dot_product_attention(query, key, value, places[None, :] <= places[:, None])


def heads() -> tuple[torch.Tensor, ...]:
    return tuple(torch.randn(2, 2, 6, 16) for _ in range(3))


@pytest.mark.parametrize(
    ("function", "arguments", "edits"),
    [
        (lambda x: x @ x.sin(), (torch.randn(4, 4),), 0),
        (attention, heads(), 0),
        (masked, heads(), 1),
        (graphs.rms_norm, (torch.randn(4, 32), torch.randn(32)), 1),
    ],
)
def test_a_graph_that_gives_a_pass_nothing_to_do_is_left_alone(monkeypatch, function, arguments, edits):
    module, times = graphs.trace(function, *arguments), {"recompile": 0, "lint": 0, "__init__": 0}
    copies = {"graph": 0, "graph_copy": 0}

    def counted(owner, name, times):
        original = getattr(owner, name)

        def call(*given, **named):
            times[name] += 1
            return original(*given, **named)

        monkeypatch.setattr(owner, name, call)

    counted(module, "recompile", times), counted(fx.Graph, "lint", times), counted(Snapshot, "__init__", times)
    counted(Snapshot, "graph", copies), counted(fx.Graph, "graph_copy", copies)
    pipeline.run(module)
    assert times == dict.fromkeys(times, edits)
    assert copies == dict.fromkeys(copies, 0)


def test_a_pass_that_fails_takes_along_what_builds_on_it(monkeypatch):
    def broken(*_):
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(matches, "check", broken)
    module = graphs.trace(lambda q, k, v, x, w: (masked(q, k, v), graphs.rms_norm(x, w)), *heads(),
                          torch.randn(4, 32), torch.randn(32))  # fmt: skip
    kept = []
    record = pipeline.run(module, Settings(failing=lambda error, what: kept.append((str(error), what))))
    assert kept == [("broken on purpose", "a graph")] and record.failures == ["RuntimeError: broken on purpose"]
    assert record.regions == [] and len(record.masks.masks) == 1 and "unmasked" in record.have


def test_the_log_tells_each_pass(caplog):
    module = graphs.trace(graphs.rms_norm, torch.randn(4, 32), torch.randn(32))
    with caplog.at_level(logging.INFO, "cermet"):
        pipeline.run(module)
    told = [text.split(":")[0] for text in caplog.messages if text.startswith("pass ") and text.endswith(" ms")]
    assert told == [f"pass {step.name}" for step in pipeline.PASSES]


def test_the_variable_sets_the_level(monkeypatch):
    logger = logging.getLogger("cermet")
    monkeypatch.setattr(logger, "handlers", list(logger.handlers))
    monkeypatch.setattr(logger, "level", logger.level)
    for value, level in (("off", logging.CRITICAL + 1), ("warn", logging.WARNING), ("info", logging.INFO)):
        monkeypatch.setenv("CERMET_LOG", value)
        environment.log()
        assert logger.getEffectiveLevel() == level and logger.hasHandlers()
