"""Counters of the frontend have names that `cermet.counters()` tells."""

import pytest
from cermet import counting


def test_a_name_that_nobody_is_told_of_is_an_error():
    before = counting.snapshot()
    with pytest.raises(KeyError, match="region_s"):
        counting.count("region_s")
    assert counting.snapshot() == before and list(before) == list(counting.NAMES)
