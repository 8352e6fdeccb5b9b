"""Minimum cuts of random networks against networkx's."""

from __future__ import annotations

import random

import networkx
import pytest

from cermet.rematerialization.flow import Network, Unbounded


def behind(edges) -> set:
    network = Network()
    for begin, end, capacity in edges:
        network.add_edge(begin, end, capacity)
    return network.behind("source", "sink")


def truth(edges) -> set:
    """The nodes from which networkx's residual network reaches the sink."""
    graph = networkx.DiGraph([("source", "source again"), ("sink again", "sink")])
    graph.add_nodes_from(("source", "sink"))
    for begin, end, capacity in edges:
        graph.add_edge(begin, end, **({} if capacity is None else {"capacity": capacity}))
    _, (_, found) = networkx.minimum_cut(graph, "source", "sink")
    return set(found) - {"source again", "sink again"}


def drawn(seed: int) -> list[tuple]:
    """Layers of nodes, mostly one after another, each in two halves as cut.py has them."""
    draw = random.Random(seed)
    count = draw.randint(1, 60)
    edges = {}
    for node in range(count):
        edges["in", node], edges["out", node] = None, None
    made = [(("in", node), ("out", node), draw.choice([None, *range(6)])) for node in range(count)]
    for node in range(count):
        for _ in range(draw.randint(0, 3)):
            other = draw.randrange(max(0, node - 8), min(count, node + 3))
            made.append((("out", other), ("in", node), draw.choice([None, None, draw.randrange(9)])))
        if draw.random() < 0.3:
            made.append(("source", ("in", node), draw.choice([None, draw.randrange(9), draw.randrange(90)])))
        if draw.random() < 0.3:
            made.append((("out", node), "sink", draw.choice([None, draw.randrange(9), draw.randrange(90)])))
    return list({(begin, end): (begin, end, capacity) for begin, end, capacity in made if begin != end}.values())


@pytest.mark.parametrize("first", range(0, 2000, 500))
def test_cuts_of_random_networks_are_networkxs(first):
    unbounded = 0
    for seed in range(first, first + 500):
        edges = drawn(seed)
        try:
            expected = truth(edges)
        except networkx.NetworkXUnbounded:
            unbounded += 1
            with pytest.raises(Unbounded):
                behind(edges)
            continue
        nodes = {node for begin, end, _ in edges for node in (begin, end)} | {"sink"}
        assert behind(edges) & nodes == expected & nodes, f"seed {seed}: {edges}"
    assert 5 < unbounded < 450, f"{unbounded} of 500 have no cut: too many or too few to say much"
