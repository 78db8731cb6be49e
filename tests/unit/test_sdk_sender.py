"""The sender, which must not stop for what one event does."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
import redis
from refold import AsyncRefold
from refold.answers import Answered, Outcome, TooLarge
from refold.transport import InboxTransport

from tests.sdk_backend import FakeBackend
from tests.unit.test_sdk_spool import QUICK, a_dead_agents_spool, line, make, notes_in


def test_a_full_disk_while_a_refused_event_is_replaced_stops_nothing(
    backend: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    a_dead_agents_spool(backend, tmp_path, 3)
    backend.refuse = {"run.started"}

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("refold.spool._SpoolFile.rewrite", full)
    with make(backend, tmp_path) as client:
        assert client.flush()
    assert "no space left" in caplog.text
    assert notes_in(backend) == {"k0", "k1", "k2"}


def breaks(client: Any, key: str, error: Exception) -> Any:
    """The transport's ``send``, which raises for a batch that holds the note ``key``."""
    send = client._transport.send

    def broken(lines: list[bytes]) -> Any:
        if any(key.encode() in one for one in lines):
            raise error
        return send(lines)

    return broken


def test_an_event_that_breaks_the_sender_is_set_aside_alone(
    backend: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = a_dead_agents_spool(backend, tmp_path, 9)
    with make(backend, tmp_path) as client:
        monkeypatch.setattr(client._transport, "send", breaks(client, '"k4"', KeyError("type")))
        assert client.flush()
    assert notes_in(backend) == {f"k{n}" for n in range(9)} - {"k4"}
    assert b'"k4"' in path.with_suffix(".rejected").read_bytes()
    assert str(path.with_suffix(".rejected")) in caplog.text
    assert backend.types()[-1] == "run.terminated"


def test_what_is_no_events_fault_is_tried_again(
    backend: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_dead_agents_spool(backend, tmp_path, 2)
    with make(backend, tmp_path) as client:
        with monkeypatch.context() as broken:
            broken.setattr(client._transport, "send", breaks(client, "k1", RuntimeError("the library is unwell")))
            assert not client.flush(0.3)
            assert "unwell" in client.absence
        assert client.flush()
    assert notes_in(backend) == {"k0", "k1"}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_sender_that_died_is_started_again(
    backend: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with make(backend, tmp_path) as client, client.run("g") as run:
        with monkeypatch.context() as broken:
            broken.setattr(client._transport, "send", breaks(client, "k1", SystemExit()))  # type: ignore[arg-type]
            run.note("k1", 1)
            sender = client._thread
            assert isinstance(sender, threading.Thread)
            sender.join(5)
            assert not sender.is_alive()
        assert client.flush()
        assert "it is started again" in caplog.text
    assert backend.types() == ["run.started", "note.written", "run.terminated"]


def test_the_async_sender_survives_as_well(
    backend: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with AsyncRefold(backend.url, spool=tmp_path / "spool", policy=QUICK) as client:
            monkeypatch.setattr(client._transport, "send", breaks(client, '"k1"', KeyError("type")))
            async with client.run("g") as run:
                for n in range(3):
                    await run.note(f"k{n}", n)
                assert await client.flush()
                assert client._task is not None
                client._task.cancel()
                await asyncio.sleep(0.05)
                await run.note("after", 1)
                assert await client.flush()

    asyncio.run(work())
    assert notes_in(backend) == {"k0", "k2", "after"}
    assert backend.types()[-1] == "run.terminated"
    assert b'"k1"' in next((tmp_path / "spool").rglob("*.rejected")).read_bytes()


def test_an_event_that_the_inbox_cannot_take_is_refused_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    transport = InboxTransport("redis://127.0.0.1:1", 0.2)
    bad = line("i", extra=None)
    monkeypatch.setattr("redis.client.Pipeline.execute", _encode)
    assert isinstance(transport.send([line("a"), bad]), TooLarge)
    answer = transport.send([bad])
    assert isinstance(answer, Answered)
    assert [outcome.verdict for outcome in answer.outcomes] == ["refused"]
    assert transport.send([line("a")]) == Answered([Outcome("delivered", "accepted")])
    transport.close()


def _encode(pipeline: Any) -> list[Any]:
    """As ``Pipeline.execute`` begins: every command is packed before anything is sent."""
    connection = redis.Connection()
    connection.pack_commands([args for args, _ in pipeline.command_stack])
    return []
