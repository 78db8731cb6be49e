"""Rows are the same bytes whatever process folds them, at whatever time and place, with whatever owners and batches."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.contracts.worlds import YEAR_S

ROOT = Path(__file__).resolve().parents[2]


class World(NamedTuple):
    """What a process lives in."""

    seed: int
    clock_s: int
    zone: str
    locale: str
    hash_seed: str
    utf8: str


WORLDS = (
    World(1, 0, "UTC", "C", "0", "0"),
    World(2, 10 * YEAR_S, "Asia/Shanghai", "C.UTF-8", "1", "1"),
    World(3, -20 * YEAR_S, "America/St_Johns", "POSIX", "4711", "1"),
)


def told(world: World) -> list[str]:
    environment = {
        "TZ": world.zone, "LC_ALL": world.locale, "PYTHONHASHSEED": world.hash_seed, "PYTHONUTF8": world.utf8,
        "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    out = subprocess.run(
        [sys.executable, "-m", "tests.contracts.worlds", str(world.seed), str(world.clock_s)],
        cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=110,
    )  # fmt: skip
    assert out.returncode == 0, out.stderr
    return out.stdout.split()


def test_rows_are_the_same_bytes_in_every_world() -> None:
    """C18."""
    digests, *differences = zip(*map(told, WORLDS), strict=True)
    assert all(len(set(each)) == len(WORLDS) for each in differences), "the worlds do not differ"
    assert len(set(digests)) == 1, dict(zip(WORLDS, digests, strict=True))
