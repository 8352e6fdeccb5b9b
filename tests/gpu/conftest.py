"""GPU tests: skipped, with the reason by name, where torch finds no GPU."""
import contextlib
import fcntl
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import present

PLACES = 3
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


@contextlib.contextmanager
def _places(numbers):
    """Of a GPU's memory, each a third of it, whichever processes ask."""
    with contextlib.ExitStack() as held:
        for number in numbers:
            name = Path(tempfile.gettempdir()) / f"cermet-gpu-place-{number}.lock"
            fcntl.flock(held.enter_context(open(name, "w")), fcntl.LOCK_EX)
        yield
        if torch := sys.modules.get("torch"):
            torch.cuda.empty_cache()


@pytest.fixture
def room(worker_id):
    """For a test of gigabytes."""
    with _places([int(worker_id.removeprefix("gw")) % PLACES if worker_id.startswith("gw") else 0]):
        yield


@pytest.fixture
def all_room():
    """For a test that fills much of a GPU: no other of gigabytes runs."""
    with _places(range(PLACES)):
        yield
