"""`cermet.record`: everything that a process asks of libcermet, as a pack for machines that shall compile nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import warnings
from collections.abc import Iterator

from .errors import Error
from .ops import library


@dataclasses.dataclass
class Recording:
    """The pack that `record` writes. What it holds is known when the block has ended."""

    path: str
    entries: int = 0
    bytes: int = 0
    digest: str = ""
    """SHA-256 of the file; CERMET_PACKS=path#digest demands it."""
    fallbacks: int = 0  # of a capture: graphs and matches that a failure of ours left as they were


@contextlib.contextmanager
def record(path: str | os.PathLike[str]) -> Iterator[Recording]:
    """Writes a pack (docs/cache-format.md) of all that this process has asked of Cermet when the block ends.

    What a pack shall serve is called inside: a training step with its backward, an inference, both with and without
    padding where batches have both. Lengths and batch sizes need not vary, since no kernel is for one. As long as the
    block lasts torch's own caches of graphs are not used, so that everything is asked for, as on a machine where they
    are empty; what was compiled before stays as it is. A block that raises writes nothing.

    Args:
        path: of the file, in place of what has the name.

    Raises:
        cermet.Error: the file cannot be written; where its folder does not exist, before anything runs.
    """
    recording = Recording(os.path.abspath(os.fspath(path)))
    folder = os.path.dirname(recording.path)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise Error(f"a pack cannot be written to {recording.path!r}: {folder!r} is no folder that can be written")
    with _asking_everything():
        yield recording
    for name, value in library.context().write_pack(recording.path).items():
        setattr(recording, name, value)


@contextlib.contextmanager
def _asking_everything() -> Iterator[None]:
    """Without torch's caches: of a graph that they hold, the second stage asks nothing (docs/design.md)."""
    from torch._functorch import config as autograd
    from torch._inductor import config as inductor

    with autograd.patch(enable_autograd_cache=False), inductor.patch(force_disable_caches=True):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "dynamo_pgo force disabled")  # as was asked
            yield

