"""GPU tests: skipped, with the reason by name, where torch finds no GPU."""
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import present

_why = present.reason()


def pytest_collection_modifyitems(items):
    if _why:
        for item in items:
            item.add_marker(pytest.mark.skip(reason=f"tests/gpu: {_why}"))


@pytest.fixture(scope="session")
def core():
    """A context without a cache directory: every kernel here is compiled in this run."""
    import core as binding

    return binding.Core(cache="")
