"""What an agent's own runtime saves comes back as it was: through the door, the archive, the fold, and the document.

As JSON it is the same byte for byte: order of keys, kind of number, every character. One thing JSON cannot carry
everywhere is replaced, as in every event: NUL and lone surrogates become U+FFFD, and the event says so.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime
from functools import partial
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine

from events import strict_json
from events.door import admit
from events.errors import Refused
from projections.engine.folder import PartitionFolder
from projections.engine.source import ArchiveSource
from projections.engine.store import GenerationStore
from projections.queries.tasks import resume_document
from projections.task_state import TASK_STATE
from tests.contracts.engine_lab import PARTITIONS, Lab
from tests.unit.fold_runner import event, fold

NOW = datetime(2026, 8, 1, tzinfo=UTC)


def nested(depth: int) -> Any:
    value: Any = {"deep": "est"}
    for _ in range(depth):
        value = [value]
    return value


HAZARDS: dict[str, Any] = {
    "nothing": None,
    "empty": [{}, [], "", {"": ""}],
    "order of keys": {"z": 1, "a": {"c": 1, "b": 2}, "0": 0, "Z": 3},
    "whole and broken": [1, 1.0, -0.0, 0, 1e16, 1e22, 5e-324, 1.7976931348623157e308, 0.1, 100000.0],
    "large": [2**63 - 1, -(2**63), 2**53 + 1],
    "true is not 1": [True, 1, False, 0, None, "null", "true", "1"],
    "text that looks like something": ["NaN", "Infinity", "\\u0000", "\\ud800", "1e5", "2026-03-01", "{}", "'; --"],
    "controls": '\x01\x1b\x1f\x7f\u0085\u2028\u2029\ufeff\n\r\t\\"/',
    "composed and decomposed": ["caf\u00e9", "cafe\u0301", "\uff21\uff22"],
    "beyond the plane": "\U00020bb7\U0001f468\u200d\U0001f469\u200d\U0001f467\U0001f3fd",
    "names of other languages": {
        "__proto__": {"x": 1},
        "constructor": 2,
        "$ref": "#",
        "@type": "t",
        "a.b": 1,
        "a\x1fb": 2,
    },
    "ours": {"data": {"data": 1}, "org": "other", "key": "task/other", "epoch": 9, "n": 9, "full": "x"},
    "deep": nested(50),
    "long": "\u4e16\u754c " * 100_000 + "x" * 200_000,
}


def document_of(data: Any) -> Any:
    """The latest checkpoint of a task, as the next attempt is given it; in memory."""
    folded = fold(TASK_STATE, [event("checkpoint.saved", 1, task="t", run="r", data={"data": data})])
    engine = create_engine("sqlite://")
    with engine.connect() as conn:
        for table in TASK_STATE.tables:
            table.create(conn)
        folded.store(conn)
        document = resume_document(conn, "default", "t", now=NOW)
    engine.dispose()
    assert document is not None
    return document["checkpoint"]["data"]


NAMES = st.text("abz\u00e9\u4e16", max_size=3)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(VALUES)
def test_any_value_comes_back_byte_for_byte(value: Any) -> None:
    assert orjson.dumps(document_of(value)) == orjson.dumps(value)


def test_hazards_come_back_byte_for_byte(lab: Lab) -> None:
    """C22, C27, C30, C31: from a real archive and a real generation, on both stores; the log holds what was said."""
    store = GenerationStore(TASK_STATE, lab.stores.generation("task_state__g1"))
    store.create(PARTITIONS)
    given_ = {**HAZARDS, "all": {name: value for name, value in HAZARDS.items() if name != "long"}}
    for number, (name, value) in enumerate(given_.items()):
        body = {"data": value, "data_version": f"v{number}.\u03b2", "checkpoint": name}
        raw = {"id": name, "type": "checkpoint.saved", "task": name, "run": "r", "data": body}
        # as a publisher sends it: the text of an event, and not a value of this process
        (read,) = strict_json.loads_many(orjson.dumps(raw))
        lab.archive(admit(read))
    for partition in range(PARTITIONS):
        owner = PartitionFolder.take_over(store, ArchiveSource(lab.log), partition, "w")
        while owner.step().read:
            pass
    for number, (name, value) in enumerate(given_.items()):
        document = store.db.read_now(partial(resume_document, org="default", task=name, now=NOW))
        assert document is not None
        saved = document["checkpoint"]
        assert orjson.dumps(saved["data"]) == orjson.dumps(value), name
        assert (saved["data_version"], saved["checkpoint"]) == (f"v{number}.\u03b2", name)
    store.db.close()


@pytest.mark.parametrize(
    "text",
    [b"9999999999999999999999", b"NaN", b'{"a":1,"a":2}', b"[" * 70 + b"]" * 70, b'"' + b"x" * (1 << 20) + b'"'],
    ids=["no number of 64 bits", "no JSON", "a name twice", "too deep", "too large"],
)
def test_what_could_not_come_back_as_it_was_is_refused(text: bytes) -> None:
    """C23, C26, C27, C28."""
    body = b'{"id":"e","type":"checkpoint.saved","task":"t","run":"r","data":{"data":' + text + b"}}"
    with pytest.raises(Refused):
        admit(strict_json.loads_many(body)[0])


def test_what_json_cannot_carry_is_replaced_and_said() -> None:
    """C22."""
    raw = {"id": "e", "type": "checkpoint.saved", "task": "t", "run": "r", "data": {"data": "a\x00b\ud800c"}}
    admitted = admit(raw)
    assert admitted.sanitized
    assert orjson.loads(admitted.data)["data"] == "a\ufffdb\ufffdc"
    assert not admit({**raw, "data": {"data": "a\\u0000b"}}).sanitized


def test_only_the_latest_is_handed_back_however_large_those_before(lab: Lab) -> None:
    """And it is the latest by the log, whatever its name or version says."""
    dice = random.Random(1)
    store = GenerationStore(TASK_STATE, lab.stores.generation("task_state__g1"))
    store.create(PARTITIONS)
    for number in range(30):
        data = {"state": [dice.random() for _ in range(1000)], "number": number}
        body = {"data": data, "data_version": str(100 - number), "checkpoint": f"p{dice.random()}"}
        lab.archive(admit({"id": f"e{number}", "type": "checkpoint.saved", "task": "t", "run": "r", "data": body}))
    for partition in range(PARTITIONS):
        owner = PartitionFolder.take_over(store, ArchiveSource(lab.log), partition, "w")
        while owner.step().read:
            pass
    document = store.db.read_now(lambda conn: resume_document(conn, "default", "t", now=NOW))
    store.db.close()
    assert document is not None
    assert orjson.dumps(document["checkpoint"]["data"]) == orjson.dumps(data)
