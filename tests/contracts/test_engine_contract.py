"""The engine over both stores: each event once, in order, by one owner; whatever is restarted, fenced or poisoned."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from events.database import Stores
from projections.engine.folder import PartitionFolder
from projections.engine.source import ArchiveSource
from projections.engine.store import GenerationStore
from tests.contracts.engine_lab import PARTITIONS, TOY, Lab, dump, naive, note, where


@pytest.fixture
def lab(stores: Stores) -> Iterator[Lab]:
    lab = Lab(stores)
    yield lab
    lab.log.close()


@pytest.fixture
def store(lab: Lab) -> Iterator[GenerationStore]:
    store = GenerationStore(TOY, lab.stores.generation("toy__g1"))
    store.create(PARTITIONS)
    yield store
    store.db.close()


def fold_all(lab: Lab, store: GenerationStore, owner: str = "w", batch: int = 500) -> None:
    for partition in range(PARTITIONS):
        folder = PartitionFolder.take_over(store, ArchiveSource(lab.log), partition, owner, batch=batch)
        while folder.step().read:
            pass
        folder.hand_over()


def test_folds(lab: Lab, store: GenerationStore) -> None:
    events = [note(f"e{i}", f"t{i % 5}", f"n{i % 3}", {"v": i}) for i in range(50)]
    positions = lab.archive(*events)
    fold_all(lab, store)
    logs: dict = {}
    for e, p in zip(events, positions, strict=True):
        logs.setdefault(where(e.task), []).append((p, e))
    assert dump(store.db) == naive(logs)
