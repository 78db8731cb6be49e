"""Each commit of a rebuild is lost on its way, or its answer is: the swap happens once, and the user is told so."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from events.database import Stores
from events.errors import Refused, Transient
from projections import generations
from projections.engine import checkpoints
from projections.engine.birth import ensure_first_generation
from projections.engine.folder import PartitionFolder
from projections.engine.source import ArchiveSource
from projections.engine.store import GenerationStore
from projections.generations import Generation
from projections.rebuilding.rebuild import rebuild
from tests.chaos.commit_proxy import CommitProxy, Fate, commit_proxy, only
from tests.chaos.projector_world import check_toy, first_events
from tests.contracts.engine_lab import TOY, Lab
from tests.servers import PostgresServer
from tests.soak import ALL

SWAP = b"activated_ms="
"""What the transaction sends that makes a generation active."""
STRIDE = 1 if ALL else 4


@pytest.mark.chaos
@pytest.mark.timeout(400)
@pytest.mark.parametrize("loss", ["lose the commit", "lose the answer"])
def test_commit_answers_lost_in_a_rebuild(loss: Fate, postgres: PostgresServer) -> None:
    """Invariants 2 and 6: what fails is tried again, as a user would, and comes to one complete generation."""
    with commit_proxy(postgres.port) as proxy:
        lab = Lab(Stores(proxy.url(postgres.new_database())))
        lab.archive(*first_events())
        fold_first(lab)
        proxy.begin()
        rebuild(TOY, lab.stores, lab.log, processes=1)
        commits = proxy.commits
        for at in range(1, commits + 1, STRIDE):
            _rebuild_losing(lab, proxy, at, loss)
        proxy.begin()
        check_toy(lab)
        print(f"{commits} commits, lost: {proxy.lost}")


@pytest.mark.chaos
def test_the_answer_to_the_swap_is_lost(postgres: PostgresServer) -> None:
    """It holds: the rebuild says that it is done, and the next one would be another."""
    with commit_proxy(postgres.port) as proxy:
        lab = Lab(Stores(proxy.url(postgres.new_database())))
        lab.archive(*first_events())
        fold_first(lab)
        proxy.begin(lambda number, sent: "lose the answer" if SWAP in sent else "pass")
        new = rebuild(TOY, lab.stores, lab.log, processes=1)
        assert proxy.lost == ["lose the answer"]
        assert new.number == active_of(lab).number == 2
        assert new.state == "active"
        db = lab.stores.generation(new.name)
        assert not db.read_now(checkpoints.is_sealed)
        db.close()
        check_toy(lab)


def _rebuild_losing(lab: Lab, proxy: CommitProxy, at: int, loss: Fate) -> None:
    before = active_of(lab)
    proxy.begin(only(at, loss))
    try:
        built = rebuild(TOY, lab.stores, lab.log, processes=1, lease_ttl_s=0.5)
    except Transient:
        built = _again(lambda: rebuild(TOY, lab.stores, lab.log, processes=1, lease_ttl_s=0.5))
    assert active_of(lab).number == built.number
    assert built.number > before.number


def _again(work: Callable[[], Generation]) -> Generation:
    """As a user would: once what failed has given its lease back, or lost it."""
    while True:
        try:
            return work()
        except Refused as refused:
            if refused.code != "already_rebuilding":
                raise
        time.sleep(0.05)


def active_of(lab: Lab) -> Generation:
    active = lab.log.read_now(lambda conn: generations.active(conn, TOY.name))
    assert active is not None
    return active


def fold_first(lab: Lab) -> None:
    ensure_first_generation(TOY, lab.stores, lab.log, "test", 10)
    db = lab.stores.generation(active_of(lab).name)
    for partition in lab.marks():
        folder = PartitionFolder.take_over(GenerationStore(TOY, db), ArchiveSource(lab.log), partition, "test")
        while folder.step().read:
            pass
        folder.hand_over()
    db.close()
