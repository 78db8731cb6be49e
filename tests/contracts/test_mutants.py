"""Every safeguard is needed: with any one of them taken out of the code, a short scenario fails.

A mutant is a copy of ``events/`` and ``projections/`` in which one passage is replaced. The passage must stand there
exactly once, so that a mutant never becomes a copy without a change when the code is written anew: then look for the
new place of the safeguard.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.contracts.scenarios import CAUGHT, SCENARIOS

ROOT = Path(__file__).resolve().parents[2]


class Mutant(NamedTuple):
    """One safeguard taken out: ``old`` becomes ``new`` in ``file``. ``scenario`` must fail."""

    name: str
    scenario: str
    file: str
    old: str
    new: str


_ADVANCE = """            table.c.epoch == old.epoch,
            table.c.n == old.n,
            table.c.owner_epoch == claim.owner_epoch,
            table.c.sealed == false(),
        )
        .values(epoch=new.epoch"""


def _without(*conditions: str) -> str:
    """The compare-and-set of a checkpoint, without some of its comparisons."""
    assert all(condition in _ADVANCE for condition in conditions)
    return "\n".join(line for line in _ADVANCE.splitlines() if not any(each in line for each in conditions))


MUTANTS = (
    Mutant(
        "compare-and-set removed", "a_zombie_that_lags", "projections/engine/checkpoints.py",
        _ADVANCE, _without("table.c.epoch ==", "table.c.n ==", "owner_epoch", "sealed"),
    ),
    Mutant(
        "compare-and-set does not look whether it held", "a_zombie_that_lags", "projections/engine/checkpoints.py",
        "if advanced.rowcount != 1:", "if advanced.rowcount > 1:",
    ),
    Mutant(
        "compare-and-set does not compare owners", "a_zombie_at_the_same_position", "projections/engine/checkpoints.py",
        _ADVANCE, _without("owner_epoch"),
    ),
    Mutant(
        "compare-and-set does not compare positions", "a_claim_used_twice", "projections/engine/checkpoints.py",
        _ADVANCE, _without("table.c.epoch ==", "table.c.n =="),
    ),
    Mutant(
        "the seal is not looked at", "a_sealed_generation", "projections/engine/checkpoints.py",
        _ADVANCE, _without("sealed"),
    ),
    Mutant(
        "one event skipped at hand-over", "a_clean_hand_over", "projections/engine/checkpoints.py",
        '.values(owner="", alone=False)', '.values(owner="", alone=False, n=table.c.n + 1)',
    ),
    Mutant(
        "a cache that takes itself for complete", "an_owner_that_is_new", "projections/engine/folder.py",
        "complete=claim.position < Position(1, 0)", "complete=True",
    ),
    Mutant(
        "an owner's cache kept after fencing", "a_worker_that_was_fenced", "projections/engine/worker.py",
        "                self._folder = None\n",
        "                kept = self._folder\n"
        "                kept.claim = (await self._thread(self._claim)).claim\n",
    ),
    Mutant(
        "the archiver's compare-and-set removed", "a_second_archiver", "events/archive/store.py",
        "if advanced.rowcount != 1:", "if advanced.rowcount > 1:",
    ),
    Mutant(
        "no verdicts given", "an_event_again", "events/archive/store.py",
        "if first.position != position:", "if not first.position:",
    ),
    Mutant(
        "verdicts ignored", "an_event_again", "projections/engine/fold.py",
        "each.type in handles and each.verdict == EFFECTIVE", "each.type in handles",
    ),
    Mutant(
        "the watermark ignored", "a_row_past_the_watermark", "projections/engine/source.py",
        "last = mark if upto is None else min(mark, upto)", "last = upto or Position(9, 0)",
    ),
    Mutant(
        "gaps ignored", "a_reader_with_a_gap", "projections/engine/source.py",
        "if batch and not self._dense(after, batch):", "if not batch and not self._dense(after, batch):",
    ),
    Mutant(
        "parked keys not waited for", "a_poisoned_key", "projections/engine/fold.py",
        "elif owner in self._parked or owner in result.parked:", "elif owner in result.parked:",
    ),
    Mutant(
        "a retry that does not fence the owner", "a_retry_beside_its_owner", "projections/engine/dead_letters.py",
        "    checkpoints.raise_owner_epoch(conn, partition)\n", "",
    ),
    Mutant(
        "a commit of unknown outcome taken for a commit", "a_commit_that_was_lost", "projections/engine/folder.py",
        "if read == (new, self.claim.owner_epoch + raised):", "if read:",
    ),
    Mutant(
        "a swap that passes nothing", "a_swap_that_goes_on", "projections/rebuilding/swap.py",
        "pass_it(old.read_now(checkpoints.read_vector))", "old.read_now(checkpoints.read_vector)",
    ),
    Mutant(
        "a swap that does not seal", "a_swap_with_a_projector", "projections/rebuilding/swap.py",
        "stamp = old.write_now(_seal)", "stamp = None",
    ),
    Mutant(
        "a swap without a lease", "a_builder_that_was_overtaken", "projections/rebuilding/swap.py",
        "        still_ours(conn)\n        generations.activate", "        generations.activate",
    ),
    Mutant(
        "the fence of append removed", "a_redis_that_was_rewound", "events/log/append.lua",
        "if why then", "if why and false then",
    ),
    Mutant(
        "dedup off", "an_event_appended_again", "events/log/append.lua",
        "names[i] = event[1]", "names[i] = event[1] .. 'x'",
    ),
)  # fmt: skip


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_holds_with_all_safeguards(name: str, tmp_path: Path) -> None:
    SCENARIOS[name](tmp_path)


def test_every_scenario_has_its_mutant() -> None:
    assert {mutant.scenario for mutant in MUTANTS} == set(SCENARIOS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_mutant_is_caught(mutant: Mutant, tmp_path: Path) -> None:
    damage(mutant, tmp_path)
    told = subprocess.run(
        [sys.executable, "-m", "tests.contracts.scenarios", mutant.scenario],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))},
        capture_output=True, text=True, check=False, timeout=90,
    )  # fmt: skip
    assert told.returncode == CAUGHT, f"{told.stdout}\n{told.stderr}"
    assert told.stdout.startswith("caught: ")


def damage(mutant: Mutant, folder: Path) -> None:
    """Copy the code, with what is compiled already, and take the safeguard out."""
    for package in ("events", "projections"):
        shutil.copytree(ROOT / package, folder / package)
    file = folder / mutant.file
    text = file.read_text()
    assert text.count(mutant.old) == 1, f"{mutant.file} holds {text.count(mutant.old)} times: {mutant.old!r}"
    file.write_text(text.replace(mutant.old, mutant.new))
