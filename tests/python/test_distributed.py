"""Two processes over gloo: DDP and FSDP2 give one process's numbers with the same plan on every rank."""

from __future__ import annotations

import collections
import dataclasses

import pytest
import torch

import truth
from pair import Pair
from sharing import SMALL_BUCKET, Case, Found, accumulate, train
from tiny_models import LAYERS

LAYER_REGIONS = 4  # two norms, a rotation and a GLU


@pytest.fixture(scope="module")
def pairs():
    """The module's pair of processes; one that a test has broken is replaced."""
    held: list[Pair] = []
    yield held
    for pair in held:
        pair.close()


@pytest.fixture
def pair(pairs, tmp_path):
    if pairs and pairs[0].broken:
        pairs.pop().close()
    if not pairs:
        pairs.append(Pair(str(tmp_path / "store")))
    return pairs[0]


def check(found: list[Found], regions: int) -> None:
    """The rule for numbers; the same gradients, regions and kernels on both ranks; no graph break of ours."""
    truth.assert_none_is_far_from_eager(found[0].ours, found[0].eager, torch.float32)
    assert "loss" in found[0].ours and len(found[0].ours) > 20, found[0].ours.keys()
    assert found[0].gradients == found[1].gradients
    assert found[0].plan == found[1].plan and sum(map(len, found[0].plan)) == regions, found[0].plan
    for one in found:
        assert one.counters["regions"] == regions and one.counters["fallbacks"] == 0, one.counters
        assert one.counters["late_gradients"] == 0, one.counters
        assert one.counters["launches"] > regions
        assert one.breaks["cermet"] == one.breaks["aot_eager"]


ALL = LAYER_REGIONS * LAYERS + 2  # and the last norm and the loss
CASES = {
    "ddp aot": (Case(), ALL),
    "ddp enable": (Case(backend="enable", seeds=2), ALL),
    "ddp static graph": (Case(static_graph=True, options={"remainder": "aot", "logits": "keep"}), ALL),
    "ddp checkpointed": (Case(checkpointed=True), ALL),
    "ddp of a compiled model": (Case(spread="ddp inside"), ALL),
    "fsdp whole": (Case(spread="fsdp whole"), ALL),
    "fsdp enable": (Case(spread="fsdp whole", backend="enable", seeds=2), ALL),
    "fsdp blocks": (Case(spread="fsdp blocks"), LAYER_REGIONS + 2),  # one graph serves every block
    "fsdp layers": (Case(spread="fsdp layers"), LAYER_REGIONS),
}


@pytest.mark.parametrize("name", CASES)
def test_two_processes_give_the_numbers_of_one(pair, name):
    case, regions = CASES[name]
    check(pair.run(train, case), regions)


def test_logits_that_nobody_made_go_through_a_static_graph(pair):
    """DDP copies every result there, in a frame that Dynamo leaves to Python for a tensor that makes itself."""
    found = pair.run(train, Case(static_graph=True, seeds=2))
    check([dataclasses.replace(one, breaks={"cermet": {}, "aot_eager": {}}) for one in found], ALL)


# --- DDPOptimizer ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("backend, logits", [("cermet", False), ("cermet", True), ("enable", True)])
def test_a_graph_that_is_split_by_buckets(pair, backend, logits):
    seeds = truth.EVERY_SEED if backend == "cermet" else 2
    found = pair.run(train, Case(bucket=SMALL_BUCKET, backend=backend, logits=logits, seeds=seeds))
    assert found[0].counters["graphs"] > 2, f"DDPOptimizer did not split: {found[0].counters}"
    assert all(one.unmade for one in found)
    check(found, sum(map(len, found[0].plan)))
    patterns = collections.Counter(pattern for graph in found[0].plan for pattern, _, _ in graph)
    # A bucket that begins at the up projection leaves the activation in one graph and its product in the next.
    assert patterns["rope"] == LAYERS and patterns["cross_entropy"] == 1, patterns
    assert patterns["rms_norm"] + patterns["add_rms_norm"] == 2 * LAYERS + 1, patterns


def test_without_cuts_buckets_of_any_size_leave_one_graph(pair):
    found = pair.run(train, Case(bucket=SMALL_BUCKET, cut=False, seeds=2))
    assert found[0].counters["graphs"] == 1
    found = [dataclasses.replace(one, breaks={"cermet": {}, "aot_eager": {}}) for one in found]
    check(found, ALL)


# --- Steps that do not synchronise, ranks that differ ----------------------------------------------------------------


@pytest.mark.parametrize("remainder", ["aot", "eager", "inductor"])
def test_no_sync_accumulates(pair, remainder):
    found = pair.run(accumulate, Case(options={"remainder": remainder}))
    assert found[0].plan == found[1].plan and found[0].gradients == found[1].gradients
    truth.assert_none_is_far_from_eager(found[0].ours, found[0].eager, torch.float32)
    assert found[0].counters["graphs"] <= 2 and found[0].counters["fallbacks"] == 0, found[0].counters


def test_ranks_with_words_of_their_own_length_have_the_same_regions(pair):
    """The same keys, too, but the loss's: it joins rows, and the text of what has no symbols says how many."""
    found = pair.run(train, Case(lengths=(16, 11)))
    plans = [[region for graph in one.plan for region in graph] for one in found]
    assert [pattern for pattern, _, _ in plans[0]] == [pattern for pattern, _, _ in plans[1]]
    layers = [[region for region in plan if region[0] != "cross_entropy"] for plan in plans]
    assert layers[0] == layers[1] and len(layers[0]) == ALL - 1
    check([found[0], dataclasses.replace(found[1], plan=found[0].plan)], ALL)


# --- One cache for both ----------------------------------------------------------------------------------------------


def test_both_ranks_race_on_a_cold_cache_and_a_later_pair_compiles_nothing(tmp_path):
    environment = {"CERMET_CACHE_DIR": str(tmp_path / "cache")}
    results = []
    for attempt in ("cold", "warm"):
        pair = Pair(str(tmp_path / attempt), environment)
        try:
            results.append(pair.run(train, Case(seeds=1)))
        finally:
            pair.close()
    for found in results:
        check(found, ALL)
    cold, warm = ([one.counters for one in found] for found in results)
    assert all(counters["cache_failures"] == 0 for counters in [*cold, *warm])
    kernels = warm[0]["kernels_from_directory"]
    assert kernels > 0 and max(counters["kernels_compiled"] for counters in cold) > 0
    for counters in cold:  # each kernel is compiled here or found where the other rank has put it
        assert counters["kernels_compiled"] + counters["kernels_from_directory"] == kernels, (counters, kernels)
    assert sum(counters["kernels_compiled"] for counters in cold) == kernels, cold  # and by one of them
    asked = {counters["plans_compiled"] + counters["plans_from_directory"] for counters in cold}
    assert {sum(counters["plans_compiled"] for counters in cold)} == asked, cold  # matches and gradients, too
    for counters in warm:
        assert counters["kernels_compiled"] == counters["plans_compiled"] == 0, counters
    assert [found[0].plan for found in results][0] == results[1][0].plan
    assert results[0][0].gradients == results[1][0].gradients
