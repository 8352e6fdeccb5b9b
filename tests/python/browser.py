"""A page in headless Chromium, driven over the DevTools protocol's pipe: no port, no driver, no package."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Page:
    """`with Page(path) as page: page.run("document.title")`. Raises RuntimeError with what Chromium said."""

    def __init__(self, path: Path, dark: bool = False) -> None:
        self._path, self._dark, self._next, self._events = path, dark, 0, []

    def __enter__(self) -> Page:
        self._profile = tempfile.TemporaryDirectory(prefix="cermet-chromium-", ignore_cleanup_errors=True)
        commands, answers = os.pipe(), os.pipe()

        def at_three_and_four() -> None:  # where --remote-debugging-pipe reads and writes
            ours = os.dup(commands[0]), os.dup(answers[1])
            os.dup2(ours[0], 3)
            os.dup2(ours[1], 4)

        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe"]
        self._process = subprocess.Popen(
            [str(CHROMIUM), *flags, f"--user-data-dir={self._profile.name}", "about:blank"],
            close_fds=False,
            preexec_fn=at_three_and_four,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands[0])
        os.close(answers[1])
        self._write, self._read = os.fdopen(commands[1], "wb"), os.fdopen(answers[0], "rb")
        self._buffer = b""
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._call(f"{domain}.enable")
        scheme = {"name": "prefers-color-scheme", "value": "dark" if self._dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        self._call("Page.navigate", url=self._path.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            self._events.append(self._message())
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._write.close()
        self._read.close()
        self._profile.cleanup()

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            part = os.read(self._read.fileno(), 1 << 16)
            if not part:
                raise RuntimeError(f"{CHROMIUM} ended with status {self._process.wait()}")
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._next += 1
        request = {"id": self._next, "method": method, "params": parameters}
        if not method.startswith("Target."):
            request["sessionId"] = self._session
        self._write.write(json.dumps(request).encode() + b"\0")
        self._write.flush()
        while True:
            answer = self._message()
            if answer.get("id") != self._next:
                self._events.append(answer)
            elif "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']}")
            else:
                return answer["result"]

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    @property
    def problems(self) -> list[str]:
        """Exceptions and log entries of the page so far."""
        bad = ("Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(event["params"]) for event in self._events if event.get("method") in bad]

    @property
    def requests(self) -> list[str]:
        """Every address that the page asked for."""
        sent = [event for event in self._events if event.get("method") == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]
