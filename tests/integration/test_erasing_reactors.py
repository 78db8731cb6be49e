"""An erasure while reactors wait: no answer brings anything back, and nothing is tried for ever."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from events.archive.subjects import Subject
from services.erasing.asking import events_of
from services.reactors import partition
from services.reactors.reactor import Later, Reaction, Reactor
from tests.integration.reactor_lab import (
    PARTITIONS,
    ArchiveOutlet,
    checkpoints_at_end,
    look_often,
    loop_of,
    put,
    run_events,
    run_until,
    sqlite_log,
    stored,
)


def test_a_reaction_that_waits_for_what_was_erased_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own words of the last try are erased as they come, so that it would never find them."""
    tries: list[str] = []

    async def ask(reaction: Reaction) -> Later:
        tries.append(reaction.event.run)
        return Later(0.01)

    asking = Reactor(name="asking", handles=frozenset(("run.terminated",)), react=ask, from_start=True)
    monkeypatch.setattr(partition, "FRESH_S", 0.0)
    look_often(monkeypatch)
    with sqlite_log(tmp_path, asking) as db:
        put(db, *run_events("r1"))
        loop = loop_of(db, ArchiveOutlet(db), asking)

        def has_ended() -> bool:
            if tries and not stored(db, "scope.erased"):
                put(db, *events_of(Subject("default", "user", "u1"), "x", "", PARTITIONS))
            return checkpoints_at_end(db, asking.key)

        asyncio.run(run_until([loop], has_ended))
        assert set(tries) == {"r1"} and stored(db, "run.terminated") == []


def test_what_was_left_to_newer_code_holds_nothing_up_once_it_is_erased(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The reactor goes on without being started anew."""
    seen: list[str] = []

    async def note(reaction: Reaction) -> list[dict[str, Any]]:
        seen.append(reaction.event.run)
        return []

    noting = Reactor(name="noting", handles=frozenset(("run.terminated",)), react=note, from_start=True)
    monkeypatch.setattr(partition, "LEFT_S", 0.05)
    look_often(monkeypatch)
    with sqlite_log(tmp_path, noting) as db:
        *others, end = run_events("r1")
        put(db, *others, replace(end, schemaversion=99))
        loop = loop_of(db, ArchiveOutlet(db), noting)

        def has_ended() -> bool:
            if "leaves partition" in caplog.text and not stored(db, "scope.erased"):
                put(db, *events_of(Subject("default", "user", "u1"), "x", "", PARTITIONS))
            return checkpoints_at_end(db, noting.key) and bool(stored(db, "scope.erased"))

        asyncio.run(run_until([loop], has_ended))
        assert seen == [] and stored(db, "run.terminated") == []
