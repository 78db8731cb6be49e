"""The swap in the hands of builders that come too late, or find what another one left."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pytest

from events.database import Stores
from events.errors import Fenced
from events.event import Position
from projections import generations
from projections.engine import checkpoints, ownership
from projections.engine.birth import create_store, ensure_first_generation
from projections.generations import Generation
from projections.rebuilding.swap import swap, unseal_abandoned
from tests.contracts.engine_lab import TOY, Lab

LEASE = ownership.rebuild_lease("toy")


@pytest.fixture
def lab(stores: Stores) -> Lab:
    lab = Lab(stores)
    ensure_first_generation(TOY, lab.stores, lab.log, "first", 60)
    return lab


def candidate(lab: Lab) -> Generation:
    generation = lab.log.write_now(lambda conn: generations.create(conn, TOY))
    create_store(TOY, lab.stores, lab.log, generation.name).db.close()
    return generation


def active(lab: Lab) -> Generation:
    found = lab.log.read_now(partial(generations.active, projection="toy"))
    assert found is not None
    return found


def acquire(lab: Lab, owner: str, ttl_s: float = 60) -> bool:
    return lab.log.write_now(lambda conn: ownership.acquire(conn, LEASE, 0, owner, ttl_s))


def confirm(owner: str) -> partial[None]:
    return partial(ownership.confirm, name=LEASE, partition=0, owner=owner)


def is_sealed(lab: Lab, generation: Generation) -> bool:
    db = lab.stores.generation(generation.name)
    try:
        return db.read_now(checkpoints.is_sealed)
    finally:
        db.close()


def nothing(vector: Mapping[int, Position]) -> None:
    """There is nothing to pass."""


def test_who_holds_the_lease_swaps_and_the_old_generation_stays_sealed(lab: Lab) -> None:
    old, new = active(lab), candidate(lab)
    assert acquire(lab, "mine")
    assert swap(new, lab.stores, lab.log, nothing, confirm("mine")).state == "active"
    assert active(lab).number == new.number
    assert is_sealed(lab, old)


def test_who_lost_the_lease_before_swaps_and_seals_nothing(lab: Lab) -> None:
    old, new = active(lab), candidate(lab)
    assert acquire(lab, "other")
    with pytest.raises(Fenced, match="no longer ours"):
        swap(new, lab.stores, lab.log, nothing, confirm("mine"))
    assert active(lab).number == old.number
    assert not is_sealed(lab, old)


def test_who_loses_the_lease_in_the_swap_takes_its_own_seal_back(lab: Lab) -> None:
    old, new = active(lab), candidate(lab)
    assert acquire(lab, "mine", ttl_s=-1)

    def freeze(vector: Mapping[int, Position]) -> None:
        assert acquire(lab, "other")

    with pytest.raises(Fenced):
        swap(new, lab.stores, lab.log, freeze, confirm("mine"))
    assert active(lab).number == old.number
    assert not is_sealed(lab, old)


def test_the_seal_of_whoever_goes_on_is_left_alone(lab: Lab) -> None:
    old, new = active(lab), candidate(lab)
    assert acquire(lab, "mine", ttl_s=-1)

    def freeze(vector: Mapping[int, Position]) -> None:
        assert acquire(lab, "other")
        db = lab.stores.generation(old.name)
        db.write_now(partial(checkpoints.seal, sealed=True))
        db.close()

    with pytest.raises(Fenced):
        swap(new, lab.stores, lab.log, freeze, confirm("mine"))
    assert is_sealed(lab, old)


def test_a_seal_that_was_left_behind_is_taken_off_by_the_next_builder(lab: Lab) -> None:
    db = lab.stores.generation(active(lab).name)
    db.write_now(partial(checkpoints.seal, sealed=True))
    db.close()
    unseal_abandoned("toy", lab.stores, lab.log)
    assert not is_sealed(lab, active(lab))
