"""Two processes of one gloo group, which tests send functions to."""

from __future__ import annotations

import datetime
import multiprocessing
import os
import traceback
from collections.abc import Callable
from typing import Any

import torch

WORLD = 2
# What both begin with, unless CUDA is there, which no process may open before it forks. Cermet is not imported yet.
IMPORTED = ["torch._functorch.aot_autograd", "torch._inductor.codecache", "transformers.models.llama.modeling_llama"]
TIMEOUT = 240  # seconds, after which a collective that the other rank never joins is an error


def _serve(rank: int, store: str, environment: dict[str, str], pipe: Any) -> None:
    os.environ.update(environment | {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(WORLD)})
    torch.set_num_threads(1)
    timeout = datetime.timedelta(seconds=TIMEOUT)
    torch.distributed.init_process_group("gloo", f"file://{store}", timeout, WORLD, rank)
    while (asked := pipe.recv()) is not None:
        function, arguments = asked
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        torch.manual_seed(0)
        try:
            pipe.send((function(*arguments), ""))
        except Exception:
            pipe.send((None, traceback.format_exc()))
    torch.distributed.destroy_process_group()


class Pair:
    """The processes; both run what `run` is given. `environment` is added to theirs."""

    def __init__(self, store: str, environment: dict[str, str] | None = None) -> None:
        context = multiprocessing.get_context("spawn" if torch.cuda.is_available() else "forkserver")
        context.set_forkserver_preload(IMPORTED)
        self.broken = False  # a rank failed, so that they may wait for different things
        self._pipes, self._processes = [], []
        given = dict(os.environ) | (environment or {})
        for rank in range(WORLD):
            mine, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(rank, store, given, theirs), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(mine)
            self._processes.append(process)

    def run(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """What a module's function returns in each process. Raises where one of them raises or ends."""
        self.broken = True  # unless both answer well
        for pipe in self._pipes:
            pipe.send((function, arguments))
        answers, troubles = [], []
        for rank in range(WORLD):
            value, trouble = self._answer(rank)
            answers.append(value)
            troubles += [f"rank {rank}: {trouble}"] if trouble else []
        assert not troubles, "\n".join(troubles)
        self.broken = False
        return answers

    def _answer(self, rank: int) -> tuple[Any, str]:
        """What a rank's function returned, or why it did not."""
        if not self._pipes[rank].poll(2 * TIMEOUT):
            return None, f"no answer after {2 * TIMEOUT} s"
        try:
            return self._pipes[rank].recv()
        except EOFError:
            self._processes[rank].join(20)
            return None, f"ended with exit code {self._processes[rank].exitcode}"

    def close(self) -> None:
        for pipe in self._pipes:
            try:
                pipe.send(None)
            except OSError:  # it has ended
                pass
        for process in self._processes:
            process.join(0 if self.broken else 20)
            if process.is_alive():
                process.kill()
