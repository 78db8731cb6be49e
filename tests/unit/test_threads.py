"""Threads of checkpoints: the fold, its reads, and what a checkpointer knows of them in its own memory."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refold import Conflict
from refold.integrations.langgraph.memo import Memo
from refold.integrations.langgraph.wire import copied, events_of
from refold.integrations.langgraph.writer import Writer
from sqlalchemy import Connection, create_engine

from events.errors import Poison
from projections.projection import RowRef
from projections.queries.threads import Wanted, list_checkpoints, place, thread_document
from projections.threads import THREADS_PROJECTION
from tests.unit.fold_runner import Folded, event, fold, record

CHANNELS = ("a", "b", "日本")


def packed(value: Any) -> list[str]:
    return ["json", b64encode(json.dumps(value).encode()).decode()]


def advanced(checkpoint: str, parent: str = "", namespace: str = "", **values: Any) -> dict[str, Any]:
    """A checkpoint whose values are all new; their versions are named by it."""
    return {
        "namespace": namespace, "checkpoint": checkpoint, "parent": parent, "state": packed(checkpoint),
        "versions": {channel: f"{checkpoint}.{channel}" for channel in values},
        "values": [[channel, f"{checkpoint}.{channel}", *packed(value)] for channel, value in values.items()],
        "metadata": {"step": len(checkpoint)},
    }  # fmt: skip


def written(checkpoint: str, writer: str, *writes: tuple[int, str, Any], path: str = "") -> dict[str, Any]:
    listed = [[index, channel, *packed(value)] for index, channel, value in writes]
    return {"namespace": "", "checkpoint": checkpoint, "writer": writer, "path": path, "writes": listed}


def raws(*said: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Events of one thread."""
    return [
        event(f"thread.{what}", n, run="thread:t", seq=n, data=data) for n, (what, data) in enumerate(said, start=1)
    ]


def connection(folded: Folded) -> Connection:
    conn = create_engine("sqlite://").connect()
    for table in folded.projection.tables:
        table.create(conn)
    folded.store(conn)
    return conn


def reading(*said: tuple[str, dict[str, Any]]) -> Connection:
    return connection(fold(THREADS_PROJECTION, raws(*said)))


def newest(conn: Connection, namespace: str = "", checkpoint: str | None = None) -> dict[str, Any]:
    document = thread_document(conn, "default", "t", namespace, checkpoint)
    assert document is not None
    return document


def test_the_newest_checkpoint_has_the_values_that_its_versions_name() -> None:
    second = advanced("c2", "c1", b=2)
    second["versions"]["a"] = "c1.a"
    conn = reading(("advanced", advanced("c1", a=1, b=1)), ("advanced", second))
    document = newest(conn)
    assert (document["seq"], document["head"], document["checkpoint"]["parent"]) == (2, "c2", "c1")
    assert sorted(document["checkpoint"]["values"]) == [["a", *packed(1)], ["b", *packed(2)]]
    assert sorted(newest(conn, checkpoint="c1")["checkpoint"]["values"]) == [["a", *packed(1)], ["b", *packed(1)]]
    assert newest(conn, checkpoint="c9")["checkpoint"] is None
    assert newest(conn, namespace="child")["checkpoint"] is None
    assert thread_document(conn, "default", "other", "") is None
    assert thread_document(conn, "acme", "t", "") is None


def test_the_first_write_of_an_index_stays_but_the_last_error_does() -> None:
    conn = reading(
        ("advanced", advanced("c1", a=1)),
        ("written", written("c1", "w2", (0, "a", 1), (-1, "__error__", "x"), path="p2")),
        ("written", written("c1", "w2", (0, "a", 9), (1, "b", 2), (-1, "__error__", "y"), path="p2")),
        ("written", written("c1", "w9", (0, "a", 3), path="p1")),
    )
    assert newest(conn)["checkpoint"]["writes"] == [
        ["w9", "p1", 0, "a", *packed(3)],
        ["w2", "p2", -1, "__error__", *packed("y")],
        ["w2", "p2", 0, "a", *packed(1)],
        ["w2", "p2", 1, "b", *packed(2)],
    ]


@settings(max_examples=20)
@given(cut=st.integers(1, 60), batch=st.integers(1, 9))
def test_a_checkpoint_in_parts_is_the_same_checkpoint(cut: int, batch: int) -> None:
    data = advanced("c1", a='grüße 👩‍👩‍👧 \\ "')
    text = json.dumps(data, ensure_ascii=False)
    pieces = [text[start : start + cut] for start in range(0, len(text), cut)]
    said = [("chunked", {"upload": "u", "part": n, "text": piece}) for n, piece in enumerate(pieces)]
    joined = ("assembled", {"upload": "u", "parts": len(pieces), "type": "thread.advanced"})
    folded = fold(THREADS_PROJECTION, raws(*said, joined), batch=batch)
    assert folded.table("thread_parts") == []
    assert newest(connection(folded))["checkpoint"] == newest(reading(("advanced", data)))["checkpoint"] | {
        "time": folded.one("thread_checkpoints")["time"]
    }


def test_parts_that_lack_one_are_poison_and_change_nothing() -> None:
    [_, joined] = record(
        raws(
            ("chunked", {"upload": "u", "part": 0, "text": "{"}),
            ("assembled", {"upload": "u", "parts": 2, "type": "thread.advanced"}),
        )
    )
    folded = fold(THREADS_PROJECTION, raws(("chunked", {"upload": "u", "part": 0, "text": "{"})))
    before = folded.dump()
    with pytest.raises(Poison, match="part 1 of the 2 of u"):
        folded.fold([joined])
    assert folded.dump() == before


def test_pruning_keeps_what_is_kept_whole_and_nothing_else() -> None:
    """Values that a kept checkpoint shares with one that goes stay; parts that were never joined go."""
    second, child = advanced("c2", "c1", b=2), advanced("s1", namespace="child", a=5)
    second["versions"]["a"] = "c1.a"
    folded = fold(
        THREADS_PROJECTION,
        raws(
            ("advanced", advanced("c1", a=1, b=1)),
            ("written", written("c1", "w", (0, "a", 1))),
            ("advanced", second),
            ("advanced", child),
            ("written", written("c2", "w", (0, "a", 2))),
            ("chunked", {"upload": "left", "part": 0, "text": "x"}),
            ("pruned", {"keep": [["", "c2"]]}),
        ),
    )
    before = newest(reading(("advanced", advanced("c1", a=1, b=1)), ("advanced", second)))["checkpoint"]["values"]
    document = newest(connection(folded))["checkpoint"]
    assert sorted(document["values"]) == sorted(before) and len(document["writes"]) == 1
    counts = {table.name: len(folded.table(table.name)) for table in THREADS_PROJECTION.tables}
    assert counts == {
        "threads": 1, "thread_checkpoints": 1, "thread_values": 2, "thread_writes": 1, "thread_parts": 0,
        "thread_entries": 3,
    }  # fmt: skip
    folded.fold(record([event("thread.pruned", 8, run="thread:t", seq=8, keep=[])]))
    counts = {table.name: len(folded.table(table.name)) for table in THREADS_PROJECTION.tables}
    assert counts.pop("threads") == 1 and set(counts.values()) == {0}


def test_only_pruning_costs_more_in_a_longer_thread() -> None:
    folded = fold(THREADS_PROJECTION, raws(*[("advanced", advanced(f"c{n:03}", a=n)) for n in range(50)]))
    named = {len(list(THREADS_PROJECTION.names(one))) for one in record(raws(("advanced", advanced("c", a=1))))}
    assert (folded.unnamed, named) == (0, {1})
    written_ = record(raws(("written", written("c1", "w", (0, "a", 1)))))[0]
    assert list(THREADS_PROJECTION.names(written_)) == [RowRef("threads"), RowRef("thread_writes", ("", "c1", "w", 0))]


def test_lists_are_filtered_and_paged() -> None:
    said = [("advanced", advanced(f"c{n}", namespace="child" if n % 3 == 0 else "", a=n)) for n in range(9)]
    conn = reading(*said)

    def listed(limit: int = 99, **wanted: Any) -> Iterator[str]:
        return (one["checkpoint"] for one in list_checkpoints(conn, "default", Wanted(**wanted), limit))

    assert "".join(listed()) == "c8c7c6c5c4c3c2c1c0"
    assert "".join(listed(namespace="child")) == "c6c3c0"
    assert "".join(listed(before="c4", limit=2)) == "c3c2"
    assert "".join(listed(checkpoint="c5")) == "c5" and "".join(listed(metadata={"step": 3})) == ""
    [third] = list_checkpoints(conn, "default", Wanted(checkpoint="c6"), 1)
    beyond = tuple(place(third))
    assert "".join(listed(beyond=beyond)) == "c5c4c3c2c1c0"
    assert list(listed(thread="other")) == []


# ---- what a checkpointer remembers is what the backend would say

steps = st.lists(
    st.tuples(st.booleans(), st.sets(st.sampled_from(CHANNELS)), st.integers(-2, 2), st.sampled_from(["w1", "w2"])),
    max_size=12,
)


@settings(max_examples=30)
@given(steps)
def test_the_memo_says_what_a_read_would(steps: list[tuple[bool, set[str], int, str]]) -> None:
    memo, said = Memo(), []
    memo.put(("t", ""), None)
    parent, versions = "", {}
    for number, (advance, changed, index, writer) in enumerate(steps):
        if advance or not parent:
            data = advanced(f"c{number:02}", parent, **dict.fromkeys(sorted(changed), number))
            versions = data["versions"] = {**versions, **data["versions"]}
            parent = data["checkpoint"]
            said.append(("advanced", data))
            memo.advance("t", data)
        else:
            data = written(parent, writer, (index, "a", number), path=writer[::-1])
            said.append(("written", data))
            memo.write("t", data)
    if said:
        document, remembered = newest(reading(*said))["checkpoint"], memo.get(("t", ""))
        assert remembered is not None
        for one in (document, remembered):
            one["values"].sort()
            one.pop("time", None)
        assert remembered == document


def test_the_memo_forgets_rather_than_guess() -> None:
    memo = Memo()
    later = advanced("c2", "c1", a=1) | {"versions": {"a": "c2.a", "b": "c1.b"}}
    memo.advance("t", later)
    assert not memo.holds(("t", ""))
    memo.advance("t", advanced("c1", a=1))
    assert memo.holds(("t", ""))
    memo.advance("t", advanced("c0", a=1))
    assert not memo.holds(("t", ""))
    small = Memo(max_bytes=10_000)
    for n in range(20):
        small.put((f"t{n}", ""), None if n % 2 else {"state": packed(1), "values": [["a", *packed("x")]], "writes": []})
    assert small.holds(("t19", "")) and not small.holds(("t0", ""))


def test_what_is_copied_is_equal_and_each_value_goes_once() -> None:
    second = advanced("c2", "c1", b=2)
    second["versions"]["a"] = "c1.a"
    source = reading(
        ("advanced", advanced("c1", a=1, b=1)), ("written", written("c1", "w", (0, "a", 1))), ("advanced", second)
    )
    documents = list_checkpoints(source, "default", Wanted(thread="t"), 9)
    known: set[tuple[str, str, str]] = set()
    said = [(type.removeprefix("thread."), data) for one in reversed(documents) for type, data in copied(one, known)]
    assert [len(data["values"]) for what, data in said if what == "advanced"] == [2, 1]
    copies = list_checkpoints(reading(*said), "default", Wanted(thread="t"), 9)
    for one in (*documents, *copies):
        one["values"].sort()
        del one["time"]
    assert copies == documents


def test_large_data_go_in_numbered_parts() -> None:
    events = events_of("thread:t", "thread.advanced", advanced("c1", a='\\"' * 400_000))
    assert [one["type"] for one in events[:-1]] == ["thread.chunked"] * (len(events) - 1)
    assert events[-1]["data"]["parts"] == len(events) - 1 > 4
    assert max(len(json.dumps(one).encode()) for one in events) < 1 << 20


# ---- one writer


def test_a_writer_numbers_its_events_and_follows_reads_at_the_root() -> None:
    writer = Writer("t")
    writer.learn(5, "", "c5")
    assert (writer.number(2), writer.number(1), writer.seq) == (6, 8, 8)
    assert writer.learn(7, "", "c5") is False, "what it handed in itself is no surprise"
    assert writer.learn(9, "", "c9") is True
    assert writer.number(1) == 10


def test_a_writer_that_was_overtaken_in_the_midst_of_a_run_saves_nothing_more() -> None:
    writer = Writer("t")
    writer.learn(5, "", "c5")
    writer.learn(6, "child", "s1")
    with pytest.raises(Conflict, match="another process wrote on to it"):
        writer.number(1)
    writer.learn(6, "child", "s1")
    with pytest.raises(Conflict):
        writer.number(1)
    writer.learn(6, "", "c5")
    assert writer.number(1) == 7


def test_a_checkpoint_goes_on_from_the_newest_or_from_one_that_was_asked_for() -> None:
    writer = Writer("t")
    writer.learn(5, "", "c5")
    writer.check("", "c6", "c5")
    writer.advance("", "c6")
    writer.check("", "c6", "c5")  # the same one again
    with pytest.raises(Conflict, match="goes on from c5, but the newest one is c6"):
        writer.check("", "c7", "c5")
    writer.learn(5, "", "c6", asked="c5")
    writer.check("", "c7", "c5")
    writer.check("child", "s1", "s0")
