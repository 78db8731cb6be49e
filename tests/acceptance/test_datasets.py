"""Import every recorded run there is, by the commands that a user types: all of it arrives, once, and verifies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from projections.registry import PROJECTIONS
from tests.instance import NO_MODEL
from tests.soak import ALL

ROOT = Path(__file__).resolve().parents[2]
DATASETS = Path(os.environ.get("REFOLD_DATASETS") or ROOT.parent / "shared" / "data")
SAMPLES = ROOT / "tests" / "fixtures" / "imports"

REAL = (("chat", DATASETS / "tau-bench-airline"), ("relay", DATASETS / "relay"), ("swe-agent", DATASETS / "swe-agent"))
OURS = tuple((format, SAMPLES / format) for format in ("chat", "relay", "swe-agent"))

SHARE = () if ALL else ("--limit", "60")
"""Of each format; all runs in ``make soak``."""

ENVIRON = {name: text for name, text in os.environ.items() if not name.startswith("REFOLD_") and name != "REDIS_URL"}
ENVIRON |= NO_MODEL


def refold(data: Path, *arguments: str) -> Any:
    """What a command prints as JSON; it must succeed."""
    command = [sys.executable, "-m", "services.cli.main", *arguments, "--data", str(data), "--json"]
    done = subprocess.run(command, cwd=ROOT, env=ENVIRON, capture_output=True, text=True, check=False, timeout=400)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """The data folder of a running ``refold up``."""
    process = subprocess.Popen(
        [sys.executable, "-m", "services.cli.main", "up", "--data", str(tmp_path), "--http", "0"],
        cwd=ROOT, env=ENVIRON, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline().startswith("ready http://")
        yield tmp_path
        process.terminate()
        assert process.wait(60) == 0


def settled(data: Path) -> int:
    """Events in the archive, once the reactors have said all they have to say and every projection has folded it."""
    before = -1
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        status = refold(data, "status")
        behind = [one for one in (*status["projections"], *status["reactors"]) if one["lag_events"]]
        if status["events"] == before and not behind:
            return int(before)
        before = status["events"]
        time.sleep(1)
    raise AssertionError(f"still not settled: {status}")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("sources", [OURS, REAL], ids=["samples", "datasets"])
def test_everything_is_imported_once_and_verifies(data: Path, sources: tuple[tuple[str, Path], ...]) -> None:
    """C43, C46: a second import of everything changes nothing, and every read model is what its log says."""
    at_hand = [(format, path) for format, path in sources if path.is_dir()]
    if not at_hand:
        pytest.skip(f"no datasets in {DATASETS}: set REFOLD_DATASETS")
    if sources is OURS and not ALL and all(path.is_dir() for _, path in REAL):
        pytest.skip("the datasets are at hand, and say as much; `make soak` runs it")

    def import_all() -> None:
        for format, path in at_hand:
            refold(data, "import", str(path), "--format", format, "--wait", *SHARE)

    import_all()
    events = settled(data)
    first = refold(data, "verify")
    import_all()
    assert settled(data) == events
    second = refold(data, "verify")
    assert first["equal"] and second["equal"]
    assert first["projections"] == second["projections"]
    assert {one["name"] for one in first["projections"]} == set(PROJECTIONS)
