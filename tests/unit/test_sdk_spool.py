"""The spool's files, whole and damaged: nothing good is lost, and what is lost is said."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import orjson
import pytest
from refold import Policy, Refold
from refold.answers import Away, TooLarge
from refold.delivery import Batch, Delivery
from refold.mending import event_of, mend
from refold.spool import Spool

from tests.sdk_backend import FakeBackend

QUICK = Policy(backoff_s=0.02, backoff_max_s=0.05)


def make(backend: FakeBackend, tmp_path: Path, **how: Any) -> Refold:
    return Refold(backend.url, spool=tmp_path / "spool", policy=QUICK, **{"timeout_s": 5.0, **how})


def line(event_id: str, **members: Any) -> bytes:
    return orjson.dumps({"id": event_id, "type": "t", "data": {}, **members})


def numbered(*numbers: int, run: str = "r") -> list[bytes]:
    return [line(f"{run}{seq}", run=run, task=run, seq=seq) for seq in numbers]


def a_dead_agents_spool(backend: FakeBackend, tmp_path: Path, notes: int) -> Path:
    """The spool file of an agent whose backend was away: a run's start, its notes, its end."""
    backend.fault = 503
    with make(backend, tmp_path) as client, client.run("g", task="dead", run="dead") as run:
        for n in range(notes):
            run.note(f"k{n}", n)
    backend.fault = 0
    (path,) = (tmp_path / "spool").rglob("*.jsonl")
    return path


def notes_in(backend: FakeBackend) -> set[str]:
    return {data["key"] for data in backend.data("note.written")}


def test_two_processes_never_send_one_spool_file(tmp_path: Path) -> None:
    first, second = Spool(tmp_path), Spool(tmp_path)
    first.append([line("1"), line("2")])
    assert second.adopt() == 0
    first.close()
    assert second.adopt() == 2
    assert first.adopt() == 0
    assert second.head(1) == [line("1")]
    second.replace(1, [])
    assert second.head(5) == [line("2")]
    second.replace(1, [line("2a"), line("2b")])
    second.close()
    assert first.adopt() == 2
    assert first.head(5) == [line("2a"), line("2b")]
    first.replace(2, [])
    assert list(tmp_path.iterdir()) == []


def test_a_torn_last_line_is_skipped(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.append([line("1")])
    spool.close()
    path = next(tmp_path.glob("*.jsonl"))
    path.write_bytes(path.read_bytes() + b'{"id":"2", "ty')
    assert spool.adopt() == 1
    spool.close()


@pytest.mark.parametrize(
    "bad",
    [
        b'{"x":1}',
        b"garbage \xff",
        b"[]",
        line(""),
        line("i", seq=3),
        line("i", seq="3", run="r"),
        line("i", seq=True, run="r"),
        line("i", run=7),
        line("i", org="x" * 300),
        b'{"id":["i"],"type":"t","data":{}}',
        b'{"id":"i","type":"t"}',
    ],
)
def test_a_line_that_is_no_event_is_set_aside_and_the_rest_is_delivered(
    backend: FakeBackend, tmp_path: Path, caplog: pytest.LogCaptureFixture, bad: bytes
) -> None:
    path = a_dead_agents_spool(backend, tmp_path, 3)
    path.write_bytes(bad + b"\n" + path.read_bytes())
    with make(backend, tmp_path) as client:
        with client.run("g", task="later"):
            pass
        assert client.flush()
    rejected = path.with_suffix(".rejected")
    assert rejected.read_bytes() == bad + b"\n"
    assert backend.types("dead") == ["run.started", *["note.written"] * 3, "run.terminated"]
    assert backend.types()[-2:] == ["run.started", "run.terminated"]
    assert caplog.text.count("is damaged") == 1
    assert str(rejected) in caplog.text


@pytest.mark.parametrize("at", [0, 1, 4, 11])
def test_what_follows_a_lost_line_of_a_run_is_delivered(
    backend: FakeBackend, tmp_path: Path, caplog: pytest.LogCaptureFixture, at: int
) -> None:
    path = a_dead_agents_spool(backend, tmp_path, 10)
    lines = path.read_bytes().splitlines()
    lost = orjson.loads(lines[at])
    lines[at] = lines[at][:40] + b"\0" * (len(lines[at]) - 40)
    path.write_bytes(b"\n".join(lines) + b"\n")
    with make(backend, tmp_path) as client:
        assert client.flush()
    assert notes_in(backend) == {f"k{n}" for n in range(10)} - {lost["data"].get("key")}
    numbers = [event["seq"] for event in backend.events]
    assert numbers == list(range(1, len(numbers) + 1))
    assert backend.types().count("publication.refused") == (at != 11)
    assert caplog.text.count("is damaged") == 1
    assert not list((tmp_path / "spool").rglob("*.jsonl"))


def test_many_lines_lost_in_one_stretch_are_filled(backend: FakeBackend, tmp_path: Path) -> None:
    path = a_dead_agents_spool(backend, tmp_path, 60)
    raw = path.read_bytes()
    third = len(raw) // 3
    for damaged in (raw[:third] + b"\0" * third + raw[2 * third :], raw[:third] + raw[2 * third :]):
        lines = mend(damaged).lines
        seqs = [orjson.loads(one)["seq"] for one in lines]
        assert seqs == list(range(1, 63))


def test_the_start_of_a_file_may_be_anywhere_in_a_run() -> None:
    assert mend(b"\n".join([*numbered(7, 8), b""])).filled == 0
    assert mend(b"\n".join([b"?", *numbered(7, 8), b""])).filled == 1, "perhaps 6 was lost"
    assert mend(b"\n".join([*numbered(7, 10**15), b""])).filled == 0, "no such hole is believed"


def test_a_number_that_had_arrived_before_is_not_filled_and_not_complained_of(
    backend: FakeBackend, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = a_dead_agents_spool(backend, tmp_path, 3)
    lines = path.read_bytes().splitlines()
    backend.take([orjson.loads(one) for one in lines[:3]])
    path.write_bytes(b"\n".join([lines[0], b"??", *lines[2:], b""]))
    with make(backend, tmp_path) as client:
        assert client.flush()
    assert backend.types() == ["run.started", *["note.written"] * 3, "run.terminated"]
    assert "seq_conflict" not in caplog.text


def test_events_whose_number_nobody_can_place_are_kept_beside_the_spool(
    backend: FakeBackend, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The head of the file is gone without a trace."""
    path = a_dead_agents_spool(backend, tmp_path, 3)
    lines = path.read_bytes().splitlines()[2:]
    path.write_bytes(b"\n".join([*lines, b""]))
    with make(backend, tmp_path) as client:
        assert client.flush()
    assert path.with_suffix(".rejected").read_bytes().splitlines() == lines
    assert str(path.with_suffix(".rejected")) in caplog.text


def test_a_spool_file_that_cannot_be_read_does_not_keep_the_others(
    backend: FakeBackend, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = a_dead_agents_spool(backend, tmp_path, 1)
    (path.parent / "0.jsonl").mkdir()
    with make(backend, tmp_path) as client:
        assert client.flush()
    assert "0.jsonl cannot be read" in caplog.text
    assert backend.types() == ["run.started", "note.written", "run.terminated"]


def test_damaged_at_random(backend: FakeBackend, tmp_path: Path) -> None:
    """Whatever a file looks like: delivery ends, later runs are delivered, intact events are delivered or set aside."""
    chance = random.Random(7)
    raw = a_dead_agents_spool(backend, tmp_path, 20)
    whole = raw.read_bytes()
    for turn in range(10):
        damaged = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            start = chance.randrange(len(damaged))
            end = min(len(damaged), start + chance.choice((1, 1, 7, 300, 900)))
            damaged[start:end] = chance.choice((b"", b"\0" * (end - start), chance.randbytes(end - start), b"\n"))
        backend.events.clear()
        raw.write_bytes(damaged)
        with make(backend, tmp_path) as client:
            with client.run("g", task="later", run="later"):
                pass
            assert client.flush(), turn
        assert backend.types("later") == ["run.started", "run.terminated"]
        aside = b"".join(path.read_bytes() for path in raw.parent.glob("*.rejected"))
        for one in set(whole.splitlines()) & set(bytes(damaged).splitlines()):
            event = orjson.loads(one)
            assert one in aside or event in backend.events, (turn, event["seq"])
        for path in raw.parent.iterdir():
            path.unlink()


def test_files_adopted_while_the_own_one_is_sent_lose_nothing(tmp_path: Path) -> None:
    mine, other = Spool(tmp_path), Spool(tmp_path)
    mine.append([line("1"), line("2")])
    assert mine.head(1) == [line("1")]
    other.append([line("a"), line("b")])
    other.close()
    assert mine.adopt() == 2
    mine.replace(1, [])
    assert mine.head(9) == [line("a"), line("b")]
    mine.replace(2, [])
    assert mine.head(9) == [line("2")]
    mine.close()


@pytest.mark.parametrize("end", ["away", "too large", "closed"])
def test_what_was_in_the_air_goes_before_what_went_to_disk_meanwhile(tmp_path: Path, end: str) -> None:
    delivery = Delivery(Policy(batch_events=2, queue_events=4), Spool(tmp_path), lambda: None)
    for seq in (1, 2, 3, 4):
        delivery.put({"id": str(seq)}, 0.0)
    batch = delivery.next(0.0)
    assert isinstance(batch, Batch)
    assert delivery.overflow()
    if end == "closed":
        delivery.close()
        (path,) = tmp_path.glob("*.jsonl")
        assert [orjson.loads(one)["id"] for one in path.read_bytes().splitlines()] == ["1", "2", "3", "4"]
        return
    delivery.settle(batch, Away("gone") if end == "away" else TooLarge("too large"), 0.0)
    following = delivery.next(99.0)
    assert isinstance(following, Batch)
    assert orjson.loads(following.lines[0])["id"] == "1"
    delivery.close()


def test_what_the_sdk_makes_is_an_event() -> None:
    assert event_of(line("i", run="r", seq=1, user="u")) is not None
