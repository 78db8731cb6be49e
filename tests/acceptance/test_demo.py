"""``refold demo`` as a newcomer types it: every promise held, in time, and nothing left behind; and it can fail."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from tests.soak import soak

ROOT = Path(__file__).parents[2]
DEMO = [sys.executable, "-m", "services.cli.main", "demo"]
LIMIT_S = 120


def _environment(folder: Path) -> dict[str, str]:
    """With settings of another Refold about, which the demo must not use; its temporary files stand in ``folder``."""
    return {**os.environ, "REDIS_URL": "redis://127.0.0.1:1/0", "REFOLD_DATA": "/nowhere", "TMPDIR": str(folder)}


def _left_in(folder: Path) -> list[str]:
    """Command lines of processes that still work in a folder."""
    found = []
    for process in psutil.process_iter(["cmdline", "cwd"]):
        words = [*(process.info["cmdline"] or []), process.info["cwd"] or ""]
        if any(str(folder) in word for word in words):
            found.append(" ".join(words))
    return found


@pytest.mark.timeout(LIMIT_S + 60)
def test_the_demo_holds_its_promises_in_two_minutes_and_cleans_up() -> None:
    with tempfile.TemporaryDirectory(prefix="demo-test-") as place:
        folder = Path(place).resolve()
        began = time.monotonic()
        demo = subprocess.run(
            DEMO, cwd=ROOT, env=_environment(folder), capture_output=True, text=True, timeout=LIMIT_S + 30, check=False
        )
        seconds = time.monotonic() - began
        assert demo.returncode == 0, demo.stdout[-3000:] + demo.stderr[-3000:]
        assert "All 18 promises held" in demo.stdout
        assert "✗" not in demo.stdout
        assert demo.stdout.count("equal") >= 4
        assert "\x1b[" not in demo.stdout, "plain text where it is no terminal"
        assert max(len(line) for line in demo.stdout.splitlines()) <= 100
        assert seconds < LIMIT_S
        assert _left_in(folder) == []
        assert list(folder.iterdir()) == []


@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_demo_that_is_stopped_leaves_nothing(how: signal.Signals) -> None:
    with tempfile.TemporaryDirectory(prefix="demo-test-") as place:
        folder = Path(place).resolve()
        with subprocess.Popen(
            DEMO, cwd=ROOT, env=_environment(folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as demo:
            assert demo.stdout is not None
            while "agent │ check" not in demo.stdout.readline():
                assert demo.poll() is None
            demo.send_signal(how)
            demo.communicate(timeout=60)
            assert demo.returncode == 130
        assert _left_in(folder) == []
        assert list(folder.iterdir()) == []


@soak
@pytest.mark.timeout(LIMIT_S)
def test_a_broken_promise_is_told_and_is_the_exit_code() -> None:
    """A supplier who forgets what he was told gets an order twice: the demo must not call that a success."""
    program = """
from services.demo import story
from services.demo.office import Supplier

class Forgetful(Supplier):
    def orders(self):
        return [*super().orders(), *super().orders()[-1:]]

story.Supplier = Forgetful
story.crowd.RUNS = 50
story.crowd.EVENTS = 2_000
from services.demo.main import run
raise SystemExit(run())
"""
    with tempfile.TemporaryDirectory(prefix="demo-test-") as place:
        demo = subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT, env=_environment(Path(place)), capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip
    assert demo.returncode == 1, demo.stdout[-3000:] + demo.stderr[-3000:]
    assert "broken:" in demo.stdout
    assert "the supplier has each order once" in demo.stdout
