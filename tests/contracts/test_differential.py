"""The engine on both stores and a naive reference fold make the same rows of the same log, for every read model."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from events.database import Stores
from events.door import admit
from events.event import Event
from projections.rebuilding.rebuild import rebuild
from projections.registry import PROJECTIONS
from services.importers.registry import FORMATS, files, read_file
from services.importers.run import ImportedRun
from tests.contracts.engine_lab import Lab
from tests.contracts.naive import naive_fold
from tests.contracts.owners import dump_of, live_together, whole_log
from tests.contracts.streams import TEMPLATES, Made, events_of, streams

DATASETS = Path(os.environ.get("REFOLD_DATASETS") or Path(__file__).resolve().parents[3] / "shared" / "data")
ALL = list(PROJECTIONS.values())


def check(stores: Stores, events: list[Event], dice: random.Random) -> Counter[str]:
    """Live by owners that come and go = rebuild = naive, table by table; how many rows each table has."""
    lab = Lab(stores)
    everybody = live_together(lab, ALL, events, dice)
    log = whole_log(lab.log)
    counts: Counter[str] = Counter()
    for owners in everybody:
        projection = owners.store.projection
        expected = naive_fold(projection, log)
        assert dump_of(owners.store.db, projection) == expected
        active = rebuild(projection, stores, lab.log, batch=dice.choice((1, 7, 100)), allow_dead_letters=True)
        rebuilt = stores.generation(active.name)
        assert dump_of(rebuilt, projection) == expected
        counts.update({name: len(rows) for name, rows in expected.items()})
        for db in (rebuilt, owners.store.db):
            db.close()
    lab.log.close()
    return counts


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(stream=streams(), seed=st.integers(0, 2**32))
def test_random_streams_on_sqlite(tmp_path_factory: Any, stream: list[Made], seed: int) -> None:
    """Out of order, repeated, conflicting, late, unknown, newer, broken, discarded (C12, C13, C14, C15, C43)."""
    events = events_of(stream, [projection.name for projection in ALL])
    check(Stores(f"sqlite:///{tmp_path_factory.mktemp('stream')}"), events, random.Random(seed))


@pytest.mark.timeout(300)
@settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(stream=streams(), seed=st.integers(0, 2**32))
def test_random_streams_on_postgresql(postgres: Any, stream: list[Made], seed: int) -> None:
    events = events_of(stream, [projection.name for projection in ALL])
    check(Stores(postgres.new_database()), events, random.Random(seed))


def test_a_long_stream_fills_every_table(stores: Stores) -> None:
    """The streams are worth something: each table gets rows, and each cause of a dead letter occurs."""
    dice = random.Random(9)
    how = ["plain"] * 40 + ["again", "conflict", "unknown", "newer", "broken", "discard"]
    stream = [
        Made(
            dice.choice(how),
            dice.randrange(len(TEMPLATES)),
            dice.randrange(9),
            dice.randrange(10**4),
            dice.randrange(30),
        )
        for _ in range(400)
    ]
    counts = check(stores, events_of(stream, [projection.name for projection in ALL]), dice)
    tables = {str(table.name) for projection in PROJECTIONS.values() for table in projection.tables}
    assert {name for name in tables if not counts[name]} == set()
    assert counts["dead_letters"] > counts["parked"] > 0


@pytest.mark.parametrize(
    ("stores", "format", "folder"),
    [("postgresql", "swe-agent", "swe-agent"), ("sqlite", "chat", "tau-bench-airline")],
    indirect=["stores"],
)
def test_recorded_runs(stores: Stores, format: str, folder: str) -> None:
    """What real agents did."""
    path = DATASETS / folder
    if not path.is_dir():
        pytest.skip(f"no real material at {path}: set REFOLD_DATASETS")
    found = [run for file in files(path, FORMATS[format])[-4:] for run in read_file(file, FORMATS[format])]
    events = [admit(raw) for run in found if isinstance(run, ImportedRun) for raw in run.events][:250]
    assert len(events) > 100
    counts = check(stores, events, random.Random(format))
    assert counts["dead_letters"] == 0
    assert counts["cards"] > 20
