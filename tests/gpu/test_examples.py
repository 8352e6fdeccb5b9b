"""The examples of frontends/c/examples that are programs of their own on a GPU; the decoder is test_decoder.py's."""
from __future__ import annotations

import re

import pytest

from test_graphs import program, run


@pytest.mark.parametrize("rows", (1, 64, 777))
def test_captured_graph(rows):
    """Launches that were captured compute the same when they are replayed, and none of them is Cermet's again."""
    printed = run(program("cermet_captured_graph"), rows)
    assert f"16 layers of {rows} rows, replayed 3 times: " in printed, printed
    assert re.search(r"largest relative error \d\.\de-0[6-9], 0 wrong, 0 launches by Cermet", printed), printed
    times = re.search(r"launched one by one ([\d.]+) us, replayed ([\d.]+) us", printed)
    assert times and 0 < float(times[2]) < 2 * float(times[1]), printed
