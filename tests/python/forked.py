"""Python processes that begin with torch and transformers imported, ten seconds of a core: each is forked from one
that has imported these and done nothing else. They share its hash seed, and what torch read of its environment; Cermet
is not imported yet."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import torch

PARENT = """
import json, os, runpy, subprocess, sys, traceback
import torch, torch._dynamo, torch._functorch.aot_autograd, torch._inductor.codecache, torch._inductor.runtime
import transformers.models.llama.modeling_llama, transformers.models.qwen3.modeling_qwen3


def become(request):
    for number, name in ((1, "out"), (2, "err")):
        if name in request:
            os.dup2(os.open(request[name], os.O_WRONLY), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    subprocess.run = forking
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.path[:0] = [name for name in os.environ.get("PYTHONPATH", "").split(os.pathsep) if name]
    kind, *sys.argv[1:] = request["arguments"]
    status = 0
    try:
        if kind == "-m":
            runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
        elif kind == "-c":
            exec(compile(sys.argv.pop(1), "<string>", "exec"), vars(sys.modules["__main__"]))
        else:
            sys.argv[0] = kind
            sys.path.insert(0, os.path.dirname(kind))
            runpy.run_path(kind, run_name="__main__")
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if status and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def status_of(request):
    sys.stdout.flush()  # once, and not in the child again
    child = os.fork()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if child else become(request)


def forking(command, begin=subprocess.run, **given):
    # A Python process that writes where this one does is forked from this one while it has done no more than import.
    if command[0] != sys.executable or given.keys() - {"env", "timeout"} or "cermet" in sys.modules:
        return begin(command, **given)
    request = {"arguments": command[1:], "environment": given.get("env", dict(os.environ)), "folder": os.getcwd()}
    return subprocess.CompletedProcess(command, status_of(request))


for line in sys.stdin:
    print(status_of(json.loads(line)), flush=True)
"""


@functools.cache
def _parent() -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CERMET_")}
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        start_new_session=True,
    )  # fmt: skip
    atexit.register(_end, parent)
    return parent


def _end(parent: subprocess.Popen[str]) -> None:
    """With what it forked."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(parent.pid, signal.SIGKILL)
    parent.wait()


def run(
    *arguments: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """What `python ARGUMENTS` does, which are `-c CODE`, `-m MODULE` or a file and more, with all that it writes. It is
    begun anew where CUDA is, which no process may open before it forks, and where `env` has a PYTHONHASHSEED."""
    env = os.environ if env is None else env
    if torch.cuda.is_available() or "PYTHONHASHSEED" in env:
        new = [sys.executable, *arguments]
        return subprocess.run(new, capture_output=True, text=True, env=env, cwd=cwd, timeout=560)
    with tempfile.TemporaryDirectory() as folder:
        written = {name: Path(folder, name) for name in ("out", "err")}
        for file in written.values():
            file.touch()
        request = {
            "arguments": arguments, "environment": dict(env), "folder": str(cwd or Path.cwd()),
            **{name: str(file) for name, file in written.items()},
        }  # fmt: skip
        parent = _parent()
        try:
            print(json.dumps(request), file=parent.stdin, flush=True)
            status = int(parent.stdout.readline())
        except BaseException:  # a test's time was over
            _parent.cache_clear()
            _end(parent)
            raise
        out, err = (file.read_text() for file in written.values())
    return subprocess.CompletedProcess(arguments, status, out, err)
