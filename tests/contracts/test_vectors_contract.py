"""Vectors in the log store, the same on both: what comes out is what went in, of one model and one organisation."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray
from sqlalchemy import Connection, update
from sqlalchemy.exc import IntegrityError

from events.archive.schema import embedding_models
from events.archive.schema import vectors as stored
from events.database import Database
from events.event import Position
from projections.retrieval import models, vectors
from projections.retrieval.models import Reach

HASHES = [f"{number:032x}" for number in range(600)]


def rows(count: int, dimension: int = 8) -> NDArray[np.float32]:
    made = np.random.default_rng(7).normal(size=(count, dimension)).astype(np.float32)
    return np.asarray(made / np.linalg.norm(made, axis=1, keepdims=True), dtype=np.float32)


def keep(db: Database, model: str, hashes: list[str], given: NDArray[np.float32], org: str = "acme") -> int:
    db.write_now(partial(models.register, name=model, source={"model": model}, dimension=given.shape[1]))
    return db.write_now(partial(vectors.write, org=org, model=model, hashes=hashes, rows=given))


def test_vectors_come_back_bit_for_bit_in_the_order_asked_for(log_db: Database) -> None:
    given = rows(600)
    assert keep(log_db, "m", HASHES, given) == 600
    asked = [HASHES[9], "unknown", HASHES[2], HASHES[9], *HASHES[300:]]
    found, read = log_db.read_now(partial(vectors.read, org="acme", model="m", hashes=asked))
    assert found == [HASHES[9], HASHES[2], *HASHES[300:]]
    assert read.dtype == np.float32 and (read == given[[9, 2, *range(300, 600)]]).all()
    lacking = log_db.read_now(partial(vectors.missing, org="acme", model="m", hashes=["x", HASHES[0], "y", "x"]))
    assert lacking == ["x", "y"]


def test_the_first_vector_of_a_text_stays(log_db: Database) -> None:
    """Two indexers may embed one text: the second changes nothing."""
    given = rows(4)
    assert keep(log_db, "m", HASHES[:2], given[:2]) == 2
    assert keep(log_db, "m", HASHES[:3], given[1:]) == 1
    _, read = log_db.read_now(partial(vectors.read, org="acme", model="m", hashes=HASHES[:3]))
    assert (read == given[[0, 1, 3]]).all()


def test_zero_and_nan_vectors_are_never_stored(log_db: Database) -> None:
    given = rows(4)
    given[1], given[2, 3], given[3, 0] = 0.0, np.nan, np.inf
    keep(log_db, "m", HASHES[:4], given)
    found, read = log_db.read_now(partial(vectors.read, org="acme", model="m", hashes=HASHES[:4]))
    assert found == HASHES[:1] and np.isfinite(read).all()
    assert log_db.read_now(partial(vectors.missing, org="acme", model="m", hashes=HASHES[:5])) == [HASHES[4]]


def test_what_the_store_has_damaged_is_not_given_out_and_can_be_made_anew(log_db: Database) -> None:
    """A blob cut short or one that holds no numbers: searches do without, a sweep forgets what is of a wrong length."""
    given = rows(5)
    keep(log_db, "m", HASHES[:5], given)
    nan = np.full(8, np.nan, dtype=np.float32).tobytes()
    wrong = {0: given[0].tobytes()[:9], 1: nan, 2: bytes(32), 3: b""}

    def damage(conn: Connection) -> None:
        for index, blob in wrong.items():
            conn.execute(update(stored).where(stored.c.hash == HASHES[index]).values(vector=blob))

    log_db.write_now(damage)
    found, read = log_db.read_now(partial(vectors.read, org="acme", model="m", hashes=HASHES[:5]))
    assert found == [HASHES[4]] and (read == given[4:]).all()
    assert log_db.write_now(partial(vectors.drop_damaged, org="acme", model="m", dimension=8)) == 2
    lacking = log_db.read_now(partial(vectors.missing, org="acme", model="m", hashes=HASHES[:5]))
    assert lacking == [HASHES[0], HASHES[3]]


def test_models_dimensions_and_organisations_are_kept_apart(log_db: Database) -> None:
    """C17, C44."""
    keep(log_db, "small", HASHES[:3], rows(3, 8))
    keep(log_db, "large", HASHES[:3], rows(3, 12))
    keep(log_db, "small", HASHES[3:5], rows(2, 8), org="globex")
    for org, model, count, size in (("acme", "small", 3, 8), ("acme", "large", 3, 12), ("globex", "small", 2, 8)):
        found, read = log_db.read_now(partial(vectors.read, org=org, model=model, hashes=HASHES[:5]))
        assert (len(found), read.shape) == (count, (count, size))
    # written by code that knew of no registry: of a dimension that is not the model's, and so compared with nothing
    log_db.write_now(partial(vectors.write, org="acme", model="small", hashes=HASHES[5:6], rows=rows(1, 9)))
    found, read = log_db.read_now(partial(vectors.read, org="acme", model="small", hashes=HASHES[4:6]))
    assert found == [] and read.shape == (0, 8)
    assert log_db.read_now(partial(vectors.read, org="acme", model="unknown", hashes=HASHES[:5]))[0] == []


def test_one_model_is_active_and_the_one_before_is_kept(log_db: Database) -> None:
    keep(log_db, "first", HASHES[:1], rows(1))
    keep(log_db, "second", HASHES[:1], rows(1))
    assert [(one.name, one.state) for one in log_db.read_now(models.list_all)] == [
        ("first", "active"), ("second", "building"),
    ]  # fmt: skip
    assert not log_db.write_now(partial(models.activate, name="unknown"))
    assert log_db.write_now(partial(models.activate, name="second"))
    keep(log_db, "first", HASHES[1:2], rows(1))
    assert [(one.name, one.state) for one in log_db.read_now(models.list_all)] == [
        ("second", "active"), ("first", "building"),
    ]  # fmt: skip
    log_db.write_now(partial(models.activate, name="first"))
    keep(log_db, "third", HASHES[:1], rows(1))
    log_db.write_now(partial(models.activate, name="third"))
    assert [one.name for one in log_db.read_now(models.list_all)] == ["third", "first"]
    assert log_db.read_now(partial(vectors.count, model="second")) == 0
    both = embedding_models.update().values(state="active")
    with pytest.raises(IntegrityError):
        log_db.write_now(lambda conn: conn.execute(both))


def test_a_model_of_another_dimension_starts_anew(log_db: Database) -> None:
    keep(log_db, "m", HASHES[:2], rows(2, 8))
    log_db.write_now(partial(models.set_reached, name="m", reach={0: Reach("g1", Position(1, 5))}))
    keep(log_db, "m", HASHES[2:4], rows(2, 10))
    found, read = log_db.read_now(partial(vectors.read, org="acme", model="m", hashes=HASHES[:4]))
    assert found == HASHES[2:4] and read.shape == (2, 10)
    assert log_db.read_now(partial(models.reached, name="m")) == {}
    assert log_db.read_now(models.active) is not None


def test_how_far_a_model_is_and_how_much_was_written(log_db: Database) -> None:
    keep(log_db, "m", HASHES[:2], rows(2))
    reach = {0: Reach("g1", Position(1, 5)), 3: Reach("g1", Position(2, 0))}
    log_db.write_now(partial(models.set_reached, name="m", reach=reach))
    log_db.write_now(partial(models.set_reached, name="m", reach={3: Reach("g2", Position(2, 9))}))
    assert log_db.read_now(partial(models.reached, name="m")) == {**reach, 3: Reach("g2", Position(2, 9))}
    log_db.write_now(partial(models.count_written, name="m", new=2))
    active = log_db.read_now(models.active)
    assert active == ("m", {"model": "m"}, 8, "active", 2)


def test_what_is_gone_is_forgotten(log_db: Database) -> None:
    keep(log_db, "m", HASHES[:5], rows(5))
    log_db.write_now(partial(vectors.drop, org="acme", model="m", hashes=[HASHES[1], "unknown"]))
    assert log_db.read_now(partial(vectors.hashes_of, org="acme", model="m")) == {*HASHES[:5]} - {HASHES[1]}
    log_db.write_now(partial(models.forget, name="m"))
    assert log_db.read_now(vectors.orgs) == []
