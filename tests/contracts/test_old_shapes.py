"""A generation that older code made may lack any column that a read asks for: it answers, or says that it cannot."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, inspect, text, update

from events.archive.schema import generations
from events.database import Stores
from migrations import migrate
from projections.engine import tables as engine_tables
from projections.old_shapes import old_shape, reading
from projections.queries import beliefs, card_sources, cards, checkpoints, settlements, tasks
from projections.read_models import UNFIT, ReadModels
from projections.registry import PROJECTIONS
from tests.golden_store import STORES, load

NOW = datetime(2026, 3, 2, tzinfo=UTC)
ORG = "default"
READS: Mapping[str, tuple[Callable[[Connection], Any], ...]] = {
    "task_state": (
        partial(tasks.task_document, org=ORG, task="golden", now=NOW),
        partial(tasks.resume_document, org=ORG, task="golden", now=NOW, config={"plan": "p"}),
        partial(checkpoints.list_checkpoints, org=ORG, task="golden"),
        partial(checkpoints.find_checkpoint, org=ORG, task="golden", name="k1"),
        partial(tasks.list_tasks, org=ORG, status="completed"),
    ),
    "memory_cards": (
        partial(cards.cards_of_task, org=ORG, task="golden", status=""),
        lambda conn: card_sources.read_flows(conn, ORG, "counter", card_sources.read_asked(conn, ORG, "golden")),
    ),
    "settlements": (
        partial(settlements.session_document, org=ORG, session="s"),
        settlements.settled_by_outcome,
    ),
    "beliefs": (
        partial(beliefs.beliefs_of, org=ORG, scope="agent/counter", now=NOW),
        partial(beliefs.notices_of, org=ORG, scope="agent/counter"),
    ),
}


@pytest.fixture
def old(tmp_path: Path) -> Stores:
    """Stores of a former version, as to code for which every generation is made by other code."""
    stores = Stores(f"sqlite:///{tmp_path}")
    load(STORES[-1], stores)
    log = stores.log()
    migrate(log)
    log.write_now(lambda conn: conn.execute(update(generations).values(fingerprint="of other code")))
    log.close()
    return stores


@pytest.mark.parametrize("name", sorted(READS))
def test_other_code_with_the_same_tables_is_read_as_ever(old: Stores, name: str) -> None:
    async def run() -> None:
        log = old.log()
        models = ReadModels(PROJECTIONS.values(), old, log)
        for read in READS[name]:
            assert (await models.read(name, read)).stale
        models.close()
        log.close()

    asyncio.run(run())


@pytest.mark.parametrize("name", sorted(READS))
def test_a_read_without_one_of_its_columns(old: Stores, name: str) -> None:
    def answers(conn: Connection) -> int:
        """How many of the reads have an answer; the others say that they cannot yet."""
        answered = 0
        with reading(conn, old_shape(conn, PROJECTIONS[name])):
            for read in READS[name]:
                with suppress(*UNFIT):
                    read(conn)
                    answered += 1
        return answered

    def without(conn: Connection, table: str, column: str) -> int:
        conn.execute(text(f'ALTER TABLE {table} RENAME COLUMN "{column}" TO of_another_name'))
        answered = answers(conn)
        conn.execute(text(f'ALTER TABLE {table} RENAME COLUMN of_another_name TO "{column}"'))
        return answered

    def there(conn: Connection) -> list[tuple[str, str]]:
        inspector = inspect(conn)
        tables = sorted(set(inspector.get_table_names()) - engine_tables.NAMES)
        return [(table, str(one["name"])) for table in tables for one in inspector.get_columns(table)]

    generation = old.generation(f"{name}__g1")
    columns = generation.read_now(there)
    kept = [(table, column) for table, column in columns if column not in ("org", "key")][::3]  # each costs 0.1 s
    answered = [generation.write_now(partial(without, table=table, column=column)) for table, column in kept]
    generation.close()
    assert sum(answered) > 0.8 * len(READS[name]) * len(kept)
