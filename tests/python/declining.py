"""How a test says that Cermet leaves a place alone."""

from __future__ import annotations

import torch

import cermet
import graphs
import truth


def declined(function, *args, pattern: str, condition: str | None):
    """`function` is compiled, nothing of `pattern` is replaced, the near miss says `condition` (None: there is no core
    that could be one), and the result is eager's."""
    found = cermet.explain(function, *[argument.clone() for argument in args])
    assert found.counts[pattern] == 0, str(found)
    if condition is not None:
        conditions = [item.condition for item in found.near_misses if item.pattern == pattern]
        said = any(condition in text for text in conditions)
        assert said, f"expected a near miss with {condition!r}, got {conditions}"
        assert any(".py:" in item.source for item in found.near_misses), "a near miss has no source line"
    as_eager(function, *args, exact=not any(found.counts.values()))


def as_eager(function, *args, exact: bool):
    """Results, and what `function` writes into its arguments, are eager's: to the bit, or, where other operations
    around the place became a cluster, by the rule for numbers."""
    inputs = [[argument.clone() for argument in args] for _ in range(2)]
    torch._dynamo.reset()
    ours, eager = graphs.compiled(function)(*inputs[0]), function(*inputs[1])
    values = [
        [*(results if isinstance(results, tuple) else [results]), *given]
        for results, given in zip((ours, eager), inputs)
    ]
    if exact:
        torch.testing.assert_close(*values, rtol=0, atol=0)
        return
    wide = [argument.double() if argument.is_floating_point() else argument.clone() for argument in args]
    with truth.Float64():
        results = function(*wide)
    true = [*(results if isinstance(results, tuple) else [results]), *wide]
    for mine, theirs, exactly in zip(*values, true):
        assert (mine.dtype, mine.shape, mine.stride()) == (theirs.dtype, theirs.shape, theirs.stride())
        if mine.is_floating_point():
            limit = 2 * truth.relative(theirs, exactly) + truth.spacing(mine.dtype)
            assert truth.relative(mine, exactly) <= limit
        else:
            assert torch.equal(mine, theirs)
