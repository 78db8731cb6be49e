"""What is handed in arrives in order, once, or its giver is told: answers that get lost, a backend that is away."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from refold import Conflict, NotFound, RefoldError, Refused, Unavailable
from refold.integrations.langgraph.courier import Courier
from refold.integrations.langgraph.direct import DirectTransport
from refold.integrations.langgraph.wire import event
from refold.integrations.langgraph.writer import Tenure

from tests.sdk_backend import FakeBackend

LONG_S = 60.0


@pytest.fixture
def backend() -> Iterator[FakeBackend]:
    fake = FakeBackend()
    yield fake
    fake.close()


def courier(backend: FakeBackend, timeout_s: float = LONG_S) -> Courier:
    return Courier(lambda: DirectTransport(backend.url, "durable", "acme", "", 10.0), timeout_s)


def thread_event(seq: int, **data: Any) -> dict[str, Any]:
    return event("thread.written", data, run="thread:t", seq=seq)


def test_parcels_of_many_threads_arrive_in_the_order_of_their_handing_in(backend: FakeBackend) -> None:
    sender, lock, numbers = courier(backend), threading.Lock(), iter(range(1, 201))

    def give() -> None:
        for _ in range(25):
            with lock:
                future = sender.hand([thread_event(next(numbers))])
            future.result(LONG_S)

    threads = [threading.Thread(target=give) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sender.close()
    assert [one["seq"] for one in backend.events] == list(range(1, 201))
    assert len(backend.requests) < 200, "what waits together goes together"


def test_an_answer_that_gets_lost_changes_nothing(backend: FakeBackend) -> None:
    sender = courier(backend)
    backend.lose_answers = 2
    sender.hand([thread_event(1), thread_event(2)]).result(LONG_S)
    sender.hand([thread_event(3)]).result(LONG_S)
    sender.close()
    assert [one["seq"] for one in backend.events] == [1, 2, 3]


def test_conflicts_and_refusals_come_to_whom_they_concern(backend: FakeBackend) -> None:
    sender = courier(backend)
    backend.refuse = {"item.updated"}
    good, bad = sender.hand([thread_event(1)]), sender.hand([event("item.updated", {}, task="items:a")])
    late = sender.hand([thread_event(1), thread_event(2)])
    good.result(LONG_S)
    with pytest.raises(Refused, match=r"no item\.updated today"):
        bad.result(LONG_S)
    with pytest.raises(Conflict, match="2 is expected"):
        late.result(LONG_S)
    sender.close()
    with pytest.raises(RefoldError, match="closed"):
        sender.hand([thread_event(3)])


def test_what_follows_a_lost_event_is_not_sent(backend: FakeBackend) -> None:
    """Its number may be free, where another writer took just as many; another tenure may have it."""
    backend.take([thread_event(1)])
    sender, stale = courier(backend), Tenure("t")
    lost = [sender.hand([thread_event(1), thread_event(2)], stale), sender.hand([thread_event(2)], stale)]
    for future in lost:
        with pytest.raises(Conflict, match="2 is expected"):
            future.result(LONG_S)
    asked = len(backend.requests)
    with pytest.raises(Conflict, match="2 is expected"):
        sender.hand([thread_event(2)], stale).result(LONG_S)
    assert len(backend.requests) == asked
    sender.hand([thread_event(2)], Tenure("t")).result(LONG_S)
    sender.close()
    assert [one["seq"] for one in backend.events] == [1, 2]


def test_a_backend_that_stays_away_is_told_and_one_that_comes_back_has_it_all(backend: FakeBackend) -> None:
    backend.fault = 503
    short = courier(backend, 0.3)
    with pytest.raises(Unavailable, match="whether it was saved shows"):
        short.hand([thread_event(1)]).result(LONG_S)
    patient = courier(backend)
    waiting = patient.hand([thread_event(1)])
    backend.fault = 0
    waiting.result(LONG_S)
    for sender in (short, patient):
        sender.close()
    assert [one["seq"] for one in backend.events] == [1]


def test_a_large_load_goes_in_several_requests(backend: FakeBackend) -> None:
    sender = courier(backend)
    sender.hand([thread_event(n, text="x" * 900_000) for n in range(1, 11)]).result(LONG_S)
    sender.close()
    assert backend.requests == [4, 4, 2]


def test_reads_say_what_they_met(backend: FakeBackend) -> None:
    reader = DirectTransport(backend.url, "durable", "", "key", 10.0)
    with pytest.raises(NotFound, match="no_checkpoint"):
        reader.get("/v1/tasks/t/resume", {"a": "b"})
    backend.fault = 503
    with pytest.raises(Unavailable, match="out of order"):
        reader.get("/v1/tasks/t/resume", {})
    backend.fault = 422
    with pytest.raises(RefoldError, match="HTTP 422"):
        reader.get("/v1/tasks/t/resume", {})
    reader.close()
