"""Folds are pure: same log, same rows, whatever the hash seed, the time zone, the process or the time of day."""

from __future__ import annotations

import ast
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from projections.registry import PROJECTIONS
from tests.unit.fold_runner import Folded, fold, record
from tests.unit.test_golden_histories import HISTORIES, NAMES

ROOT = Path(__file__).parent.parent.parent
IMPURE = {"time", "random", "secrets", "uuid", "os", "socket", "asyncio", "threading", "redis", "httpx", "tempfile"}
IMPURE_CALLS = {"now", "today", "utcnow", "uuid4", "getenv", "id", "hash"}


def fold_modules() -> list[Path]:
    """The read-model files and the pure parts beside them."""
    folder = ROOT / "projections"
    files = [
        folder / f"{name}.py" for name in ("task_state", "memory_cards", "settlements", "beliefs", "draft", "bounds")
    ]
    return files + sorted(folder.glob("task/*.py")) + sorted(folder.glob("cards/*.py"))


@pytest.mark.parametrize("path", fold_modules(), ids=lambda path: path.stem)
def test_a_fold_has_no_clock_no_randomness_and_no_world(path: Path) -> None:
    tree = ast.parse(path.read_text())
    imported = {
        alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    imported |= {(node.module or "").split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    called = {
        node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
    }
    assert not imported & IMPURE
    assert not called & IMPURE_CALLS


def digest_of_everything() -> str:
    """One digest of the rows that all projections make of all golden histories."""
    total = hashlib.blake2b()
    for path in sorted(HISTORIES.glob("*.jsonl")):
        raws = [orjson.loads(line) for line in path.read_bytes().splitlines()]
        for projection in PROJECTIONS.values():
            total.update(fold(projection, raws).dump())
    return total.hexdigest()


def test_rows_do_not_depend_on_hash_seed_time_zone_or_process() -> None:
    """C18."""
    worlds = [("0", "UTC"), ("1", "Asia/Shanghai"), ("4711", "America/St_Johns")]
    code = "from tests.unit.test_purity import digest_of_everything; print(digest_of_everything())"
    seen = {digest_of_everything()}
    for seed, zone in worlds:
        env = {**os.environ, "PYTHONHASHSEED": seed, "TZ": zone, "PYTHONPATH": str(ROOT)}
        out = subprocess.run(
            [sys.executable, "-c", code], env=env, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
        )
        seen.add(out.stdout.strip())
    assert len(seen) == 1


@pytest.mark.parametrize("name", NAMES)
def test_applying_leaves_the_rows_it_was_given_as_they_were(name: str) -> None:
    raws = [orjson.loads(line) for line in (HISTORIES / f"{name}.jsonl").read_bytes().splitlines()]
    for projection in PROJECTIONS.values():
        folded = Folded(projection)
        for recorded in record(raws):
            given = list(folded.rows.values())
            before = orjson.dumps(given)
            folded.fold([recorded])
            assert orjson.dumps(given) == before
