"""``refold status --watch`` as it is used: in a terminal, by a program, while the instance goes away and comes back."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.instance import REFOLD, ROOT, Instance, environment, running_instance

PATIENCE_S = 60.0
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running_instance(tmp_path_factory.mktemp("watch") / "data") as instance:
        yield instance


class Terminal:
    """A process in a terminal of its own, so wide."""

    def __init__(self, columns: int, *arguments: str, **environ: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        self.process = subprocess.Popen(
            [*REFOLD, *arguments], cwd=ROOT, env=environment(TERM="xterm", **environ),
            stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        self.wrote = ""

    def until(self, holds: Callable[[str], Any]) -> None:
        """Read on until what was written satisfies it."""
        deadline = time.monotonic() + PATIENCE_S
        while not holds(self.wrote):
            assert time.monotonic() < deadline, self.wrote
            if select.select([self._master], [], [], 0.2)[0]:
                self.wrote += os.read(self._master, 65536).decode(errors="replace")

    def interrupt(self) -> int:
        """Ctrl-C; the exit code."""
        self.process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + PATIENCE_S
        while self.process.poll() is None and time.monotonic() < deadline:
            if select.select([self._master], [], [], 0.1)[0]:
                try:
                    self.wrote += os.read(self._master, 65536).decode(errors="replace")
                except OSError:  # the other end is closed
                    break
        return self.process.wait(PATIENCE_S)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)


@contextmanager
def terminal(columns: int, *arguments: str, **environ: str) -> Iterator[Terminal]:
    opened = Terminal(columns, *arguments, **environ)
    try:
        yield opened
    finally:
        opened.close()


@pytest.mark.parametrize("columns", [40, 100])
def test_the_view_is_drawn_in_place_and_ctrl_c_ends_it_well(instance: Instance, columns: int) -> None:
    with terminal(columns, "status", "--watch", "--data", str(instance.data)) as shown:
        shown.until(lambda wrote: wrote.count("Ctrl-C ends this view") >= 3)
        assert shown.interrupt() == 0
        assert "\x1b[2J" not in shown.wrote, "the screen is not wiped: it would flicker"
        assert re.search(r"\x1b\[\d*A", shown.wrote), "it is drawn over itself"
        lines = ESCAPES.sub("", shown.wrote).replace("\r", "\n").splitlines()
        assert max(map(len, lines)) <= columns
        assert any("task_state" in line and "live" in line for line in lines)
        assert "Traceback" not in shown.wrote


def watching(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*REFOLD, "status", "--watch", *arguments], cwd=ROOT, env=environment(), stdout=subprocess.PIPE
    )


def test_json_is_a_line_a_second(instance: Instance) -> None:
    process = watching("--json", "--data", str(instance.data))
    assert process.stdout is not None
    with process.stdout:
        first, second = json.loads(process.stdout.readline()), json.loads(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
    for one in (first, second):
        assert {"name", "generation", "lag_events", "lag_s", "state"} <= one["projections"][0].keys()
    assert "partitions" not in first["projections"][0]


def test_an_instance_that_goes_away_is_told_and_waited_for(tmp_path: Path) -> None:
    with running_instance(tmp_path / "data") as instance:
        process = watching("--json", "--url", instance.url)
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["ready"]
    with process.stdout:
        while "error" not in json.loads(process.stdout.readline()):
            pass
        assert "cannot reach" in json.loads(process.stdout.readline())["error"], "it goes on asking"
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0


def test_where_nothing_runs_it_says_so_at_once(tmp_path: Path) -> None:
    process = watching("--data", str(tmp_path))
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(PATIENCE_S) == 3
