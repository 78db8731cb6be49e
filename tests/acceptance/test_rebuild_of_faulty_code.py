"""Code that should not go live: what a dry run shows of it, what keeps it from being read, and how one leaves it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from events.database import Stores
from projections.rebuilding.scratch import MARK
from tests.instance import REFOLD, ROOT, Instance, environment, running_instance, until

MODULE = """
import time

from sqlalchemy import BigInteger, Column, MetaData, Text

from projections.projection import Projection, Put, RowRef, read_model_table

NOTES = read_model_table(MetaData(), "notes", Column("note", Text, primary_key=True), Column("number", BigInteger))
seen = []


def apply(recorded, rows):
    note, number = recorded.payload.key, recorded.payload.content
    {line}
    return [Put("notes", {{"note": note, "number": number}})]


COUNTS = Projection("counts", 1, (NOTES,), frozenset({{"note.written"}}), apply)
PROJECTIONS = {{"counts": COUNTS}}
"""
NOTES = 40
PATH = "/v1/projections/counts"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("faulty")


@pytest.fixture(scope="module")
def instance(folder: Path) -> Iterator[Instance]:
    fold_by(folder, "pass")
    path = os.pathsep.join((str(folder), str(ROOT)))
    with running_instance(folder / "data", REFOLD_PROJECTIONS="faulty:PROJECTIONS", PYTHONPATH=path) as running:
        written = [{"key": "n", "content": number} for number in range(NOTES)]
        events = [running.event(f"t{number}", "note.written", data) for number, data in enumerate(written)]
        token = running.stored(*events)
        until(lambda: running.http.get("/v1/projections", params={"after": token}).json()["items"][0]["reached"])
        yield running


def fold_by(folder: Path, line: str) -> None:
    """From now on, new processes fold by this code."""
    (folder / "faulty.py").write_text(textwrap.dedent(MODULE).format(line=line))


def active(instance: Instance) -> int:
    return int(instance.http.get("/v1/projections").json()["items"][0]["generation"])


def scratches(instance: Instance) -> list[str]:
    return Stores(f"sqlite:///{instance.data / 'db'}").find_generations(MARK)


def test_a_fold_that_cannot_be_repeated_is_not_made_active(instance: Instance, folder: Path) -> None:
    fold_by(folder, "seen.append(note); number = len(seen)")
    done = instance.refold("rebuild", "counts", "--check", "--json")
    job = json.loads(done.stdout)
    assert (done.returncode, job["state"]) == (1, "failed")
    assert "differs from a second refold" in job["error"]
    assert active(instance) == 1
    assert b"counts failed: " in instance.refold("rebuild", "counts", "--check").stdout


def test_code_that_cannot_fold_everything_is_shown_and_let_through_on_demand_alone(
    instance: Instance, folder: Path
) -> None:
    fold_by(folder, "assert number != 17, 'seventeen is not liked'")
    looked = instance.refold("rebuild", "counts", "--dry-run").stdout.decode()
    assert "made by other code than runs now" in looked
    assert "dead_letters, row " in looked and "seventeen is not liked" in looked
    assert "notes, row default / task/t17 / n: removed" in looked
    refused = instance.refold("rebuild", "counts")
    assert refused.returncode == 1
    assert b"1 events that counts__g1 holds cannot be folded" in refused.stdout
    assert active(instance) == 1
    assert instance.refold("rebuild", "counts", "--allow-dead-letters").returncode == 0
    assert active(instance) > 1
    shown = instance.refold("rebuild", "counts", "--rollback").stdout.decode()
    assert "reads use generation 1 again" in shown
    assert "other code made it" in shown
    assert active(instance) == 1
    # a part of it is not mended by other code either
    mended = instance.refold("rebuild", "counts", "--key", "task/t17")
    assert (mended.returncode, b"made by other code" in mended.stderr) == (1, True)


def test_ctrl_c_cancels_a_dry_run(instance: Instance, folder: Path) -> None:
    fold_by(folder, "time.sleep(1)")
    command = [*REFOLD, "rebuild", "counts", "--dry-run"]
    env = environment(REFOLD_DATA=str(instance.data))
    looking = subprocess.Popen(command, cwd=ROOT, env=env, stderr=subprocess.PIPE)
    until(lambda: scratches(instance))
    looking.send_signal(signal.SIGINT)
    _, said = looking.communicate(timeout=60)
    assert (looking.returncode, b"it is cancelled" in said) == (130, True)
    # at the end of the batch that it is at
    until(lambda: scratches(instance) == [], timeout_s=100)


def test_an_instance_that_stops_leaves_no_scratch(instance: Instance, folder: Path) -> None:
    """Run last: it ends the instance."""
    fold_by(folder, "time.sleep(1)")
    begun: dict[str, Any] = instance.http.post(f"{PATH}/dry-run").json()
    until(lambda: scratches(instance))
    assert instance.http.get(f"/v1/jobs/{begun['id']}").json()["state"] == "running"
    instance.process.send_signal(signal.SIGTERM)
    instance.process.wait(60)
    assert until(lambda: scratches(instance) == [])
