"""A ``refold up`` of the demo's own: embedded defaults, a free port, a data folder that nobody else has."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

START_S = 60.0
STOP_S = 20.0


class Trouble(Exception):
    """The demo cannot go on; the message says what happened and where to look."""


class Instance:
    """Everything on one machine, as a process. Use it in a ``with`` block: it never outlives it."""

    def __init__(self, data: Path, log: Path, **settings: str) -> None:
        self.data = data
        self.url = ""
        self.seconds_to_start = 0.0
        self._log = log
        self._settings = settings
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Instance:
        self.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def start(self, **settings: str) -> None:
        """Start, and wait until it serves; ``settings`` are environment variables from here on. Raises Trouble."""
        self._settings.update(settings)
        began = time.monotonic()
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "services.cli.main", "up", "--data", str(self.data), "--http", "0"],
                # the same on every machine: where torch is installed it would take seconds of every start
                env=clean_environment(REFOLD_EMBEDDING_FORM="light", **self._settings),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self.url = self._ready()
        self.seconds_to_start = time.monotonic() - began

    def stop(self) -> None:
        """End it, gently and then not, with whatever it started."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
        self._end_redis()

    def _ready(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            line = self._process.stdout.readline() if selector.select(START_S) else ""
        if not line.startswith("ready "):
            last = self._log.read_text().strip().splitlines()[-5:]
            self.stop()
            raise Trouble("`refold up` did not start:\n  " + "\n  ".join(last or ["it said nothing"]))
        return line.removeprefix("ready ").strip()

    def _end_redis(self) -> None:
        """The log's server has a session of its own; one that outlived its parent is named by its pid file."""
        for file in self.data.glob("redis/*.pid"):
            with suppress(ValueError, ProcessLookupError):
                os.kill(int(file.read_text()), signal.SIGTERM)


def clean_environment(**settings: str) -> dict[str, str]:
    """This process's environment without the settings of another Refold, and with the given ones."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("REFOLD_") and name != "REDIS_URL"}
    return {**kept, **settings}
