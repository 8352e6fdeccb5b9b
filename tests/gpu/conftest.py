"""GPU tests: skipped, with the reason by name, where torch finds no GPU."""
import fcntl
import sys
import tempfile
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


@pytest.fixture(autouse=True)
def returned():
    """What a test held of the GPU's memory is the other workers' afterwards."""
    yield
    if torch := sys.modules.get("torch"):
        torch.cuda.empty_cache()


@pytest.fixture
def room():
    """Of the tests whose tensors fill much of a GPU one runs at a time, whatever process runs it."""
    with open(Path(tempfile.gettempdir()) / "cermet-gpu-room.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
        if torch := sys.modules.get("torch"):
            torch.cuda.empty_cache()
