"""Written ahead: safe on this machine's disk at once, in the backend later; in order, once, or its writer is told."""

from __future__ import annotations

import os
import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from refold import Conflict, RefoldError, Refused, Unavailable
from refold.integrations.langgraph.ahead import Ahead
from refold.integrations.langgraph.direct import DirectTransport
from refold.integrations.langgraph.journal import Journal
from refold.integrations.langgraph.wire import event
from refold.integrations.langgraph.writer import Tenure
from refold.spool import Spool

from tests.sdk_backend import FakeBackend

LONG_S = 60.0


@pytest.fixture
def backend() -> Iterator[FakeBackend]:
    fake = FakeBackend()
    yield fake
    fake.close()


@contextmanager
def ahead(backend: FakeBackend, folder: Path, timeout_s: float = LONG_S, max_bytes: int = 1 << 30) -> Iterator[Ahead]:
    opened = Ahead(lambda: DirectTransport(backend.url, "durable", "acme", "", 10.0), folder, timeout_s, max_bytes)
    try:
        yield opened
    finally:
        opened.close()


def written(seq: int, thread: str = "t", **data: Any) -> dict[str, Any]:
    return event("thread.written", data, run=f"thread:{thread}", seq=seq)


def save(journal: Ahead, tenure: Tenure, *seqs: int, **data: Any) -> None:
    for seq in seqs:
        kept = journal.hand([written(seq, tenure.thread, **data)], tenure)
        journal.push()
        kept.result(LONG_S)


def numbers(backend: FakeBackend, thread: str = "t") -> list[int]:
    return [one["seq"] for one in backend.events if one["run"] == f"thread:{thread}"]


def lines(folder: Path, suffix: str = "jsonl") -> list[dict[str, Any]]:
    return [orjson.loads(line) for path in sorted(folder.glob(f"*.{suffix}")) for line in path.read_bytes().split()]


def test_threads_that_save_together_share_a_sync_and_a_request(
    backend: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, lock, seqs, tenure = [], threading.Lock(), iter(range(1, 201)), Tenure("t")

    def slow_sync(number: int) -> None:
        os.fsync(number)
        synced.append(number)
        threading.Event().wait(0.005)  # all others arrive meanwhile

    monkeypatch.setattr("refold.spool._sync", slow_sync)
    with ahead(backend, tmp_path) as journal:

        def give() -> None:
            for _ in range(25):
                with lock:
                    kept = journal.hand([written(next(seqs))], tenure)
                journal.push()
                kept.result(LONG_S)

        threads = [threading.Thread(target=give) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert journal.flush(LONG_S)
        assert journal.backlog().events == 0
    assert numbers(backend) == list(range(1, 201))
    assert 25 <= len(synced) < 150, "each of the 25 saves of a thread waited for a sync, and shared it"
    assert len(backend.requests) < 100
    assert list(tmp_path.iterdir()) == []


def test_what_a_process_leaves_is_sent_by_the_next_one_first(backend: FakeBackend, tmp_path: Path) -> None:
    """The answer to what was sent last got lost: the backend takes it for what it is. A torn last line says nothing."""
    backend.fault = 503
    tenure = Tenure("t")
    with ahead(backend, tmp_path) as journal:
        save(journal, tenure, 1, 2, 3)
        waiting = journal.backlog()
        assert (waiting.events, waiting.bytes > 300) == (3, True)
    (path,) = tmp_path.iterdir()
    left = path.read_bytes().rstrip(b"\n")
    path.write_bytes(left + b'\n{"id":"torn","type":"thr' + b"\n" * 100)
    with ahead(backend, tmp_path) as journal:
        assert [(one.thread, len(events)) for one, events in journal.inherited().items()] == [("t", 3)]
        backend.fault, backend.lose_answers = 0, 1
        journal.arrive("t")
        save(journal, Tenure("t"), 4)
        journal.arrive()
    assert numbers(backend) == [1, 2, 3, 4]
    assert list(tmp_path.iterdir()) == []


def test_two_savers_in_one_folder_keep_apart(backend: FakeBackend, tmp_path: Path) -> None:
    backend.fault = 503
    with ahead(backend, tmp_path) as one:
        save(one, Tenure("t"), 1)
        with ahead(backend, tmp_path) as two:
            assert two.inherited() == {}
            save(two, Tenure("u"), 1)
        with ahead(backend, tmp_path) as three:
            assert [tenure.thread for tenure in three.inherited()] == ["u"], "whose process is gone"
            backend.fault = 0
            three.arrive("u")
        assert one.flush(LONG_S)
    assert (numbers(backend, "t"), numbers(backend, "u")) == ([1], [1])


def test_a_writer_that_was_overtaken_loses_all_that_follows(
    backend: FakeBackend, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Other threads are not touched; what was lost is set aside, and no later process sends it."""
    stale, other = Tenure("t"), Tenure("u")
    backend.fault = 503
    with ahead(backend, tmp_path) as journal:
        save(journal, stale, 1, 2, 3)
        save(journal, other, 1)
        backend.take([written(1), written(2)])
        backend.fault = 0
        journal.arrive()
        assert isinstance(stale.lost, Conflict) and other.lost is None
        assert "3 is expected" in str(stale.lost) and "3 events" in str(stale.lost)
        with pytest.raises(Conflict, match="set aside"):
            save(journal, stale, 4)
        fresh = Tenure("t")
        save(journal, fresh, 3)
        journal.arrive()
        assert fresh.lost is None
    assert [one["seq"] for one in lines(tmp_path, "rejected")] == [1, 2, 3]
    assert "another" not in caplog.text and "set aside" in caplog.text
    with ahead(backend, tmp_path) as journal:
        assert journal.flush(LONG_S)
    assert (numbers(backend), numbers(backend, "u")) == ([1, 2, 3], [1])


def test_what_was_lost_stays_lost_over_files_and_processes(
    backend: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rival wrote as many as the first file holds: the first number of the second file is the one that is free."""
    monkeypatch.setattr("refold.integrations.langgraph.journal.SEGMENT_BYTES", 5_000)
    backend.fault = 503
    with ahead(backend, tmp_path) as journal:
        save(journal, Tenure("t"), *range(1, 31), text="x" * 500)
    first = min(tmp_path.iterdir()).read_bytes().split()
    assert 0 < len(first) < 30
    backend.take([written(seq) for seq in range(1, len(first) + 1)])
    backend.fault = 0
    with ahead(backend, tmp_path) as journal:
        assert journal.flush(LONG_S)
    assert len(backend.events) == len(first)
    assert [one["seq"] for one in lines(tmp_path, "rejected")] == list(range(1, 31))


def test_a_damaged_line_loses_its_thread_and_no_other(
    backend: FakeBackend, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor is what follows it sent where its number is free, since a rival wrote as many."""
    backend.fault = 503
    with ahead(backend, tmp_path) as journal:
        save(journal, Tenure("t"), 1, 2, 3)
        save(journal, Tenure("u"), 1)
    (path,) = tmp_path.iterdir()
    first, second, *rest = path.read_bytes().rstrip(b"\n").split(b"\n")
    path.write_bytes(b"\n".join([first, second[:40] + b"\0" * 40, *rest]) + b"\n")
    backend.take([written(1)])
    backend.take([written(2)])
    backend.fault = 0
    with ahead(backend, tmp_path) as journal:
        assert journal.flush(LONG_S)
    assert (numbers(backend), numbers(backend, "u")) == ([1, 2], [1])
    assert "is damaged: 1 lines are no events" in caplog.text
    assert sum(b'"seq":3' in path.read_bytes() for path in tmp_path.glob("*.rejected")) == 1


def test_what_the_backend_refuses_is_told_to_its_writer(backend: FakeBackend, tmp_path: Path) -> None:
    tenure = Tenure("t")
    backend.refuse = {"thread.written"}
    with ahead(backend, tmp_path) as journal:
        save(journal, tenure, 1)
        assert journal.flush(LONG_S)
        with pytest.raises(Refused, match="today"):
            save(journal, tenure, 2)


def test_a_request_that_is_too_large_is_halved(backend: FakeBackend, tmp_path: Path) -> None:
    backend.fault = 413
    tenures = [Tenure("t"), Tenure("u")]
    with ahead(backend, tmp_path) as journal:
        for tenure in tenures:
            save(journal, tenure, 1)
        assert journal.flush(LONG_S)
    assert all(isinstance(tenure.lost, Refused) for tenure in tenures)


def test_a_backend_that_stays_away_is_told_when_the_journal_is_full(backend: FakeBackend, tmp_path: Path) -> None:
    backend.fault = 503
    with ahead(backend, tmp_path, 0.3, max_bytes=1000) as journal:
        tenure = Tenure("t")
        journal.room()
        save(journal, tenure, 1, text="x" * 1000)
        with pytest.raises(Unavailable, match=r"nothing of this was saved: 1,\d\d\d bytes wait in .*HTTP 503"):
            journal.room()
        with pytest.raises(Unavailable, match=r"of thread 't' is in .* has not reached the backend: HTTP 503"):
            journal.arrive("t")
        assert "HTTP 503" in journal.backlog().away
        backend.fault = 0
        assert journal.flush(LONG_S)
        journal.room()
        save(journal, tenure, 2)
    assert numbers(backend) == [1, 2]


def test_a_full_disk_takes_nothing_and_loses_nothing(backend: FakeBackend, tmp_path: Path) -> None:
    """A line that fits in part only is not there at all; of its run nothing more is saved, until it is read again."""
    tenure = Tenure("t")
    backend.fault = 503
    with ahead(backend, tmp_path) as journal:
        save(journal, tenure, 1)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
        try:
            with pytest.raises(RefoldError, match=r"cannot be written.*make room there"):
                save(journal, tenure, 2, text="x" * 30_000)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        with pytest.raises(RefoldError, match="make room there"):
            save(journal, tenure, 3)
        save(journal, Tenure("t"), 2)
        assert [one["seq"] for one in lines(tmp_path)] == [1, 2]
        backend.fault = 0
        assert journal.flush(LONG_S)
    assert numbers(backend) == [1, 2]


def test_an_interrupt_in_the_midst_of_a_save_leaves_nobody_waiting(
    backend: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C comes while the disk syncs what another thread has handed in as well."""

    def interrupted(number: int) -> None:
        raise KeyboardInterrupt

    mine, other = Tenure("t"), Tenure("u")
    with ahead(backend, tmp_path) as journal:
        save(journal, mine, 1)
        with monkeypatch.context() as patched:
            patched.setattr("refold.spool._sync", interrupted)
            futures = [journal.hand([written(2)], mine), journal.hand([written(1, "u")], other)]
            with pytest.raises(KeyboardInterrupt):
                journal.push()
        for future in futures:
            with pytest.raises(RefoldError, match=r"nothing of this was saved: .* was interrupted"):
                future.result(LONG_S)
        save(journal, Tenure("t"), 2)
    assert (numbers(backend), numbers(backend, "u")) == ([1, 2], [])


def test_an_interrupt_of_one_that_waits_for_another_leaves_nobody_waiting(
    backend: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C comes while another thread syncs; what was handed in goes with the next save."""
    syncs, go_on = threading.Event(), threading.Event()
    mine, other = Tenure("t"), Tenure("u")

    def slow_sync(number: int) -> None:
        syncs.set()
        assert go_on.wait(LONG_S)
        os.fsync(number)

    def interrupt(main: int) -> None:
        while not journal._journal._turns:
            threading.Event().wait(0.001)
        signal.pthread_kill(main, signal.SIGINT)

    with ahead(backend, tmp_path) as journal:
        monkeypatch.setattr("refold.spool._sync", slow_sync)
        leading = threading.Thread(target=save, args=(journal, other, 1))
        leading.start()
        assert syncs.wait(LONG_S)
        kept = journal.hand([written(1)], mine)
        threading.Thread(target=interrupt, args=(threading.get_ident(),)).start()
        with pytest.raises(KeyboardInterrupt):
            journal.push()
        go_on.set()
        leading.join(LONG_S)
        save(journal, other, 2)
        kept.result(LONG_S)
    assert (numbers(backend), numbers(backend, "u")) == ([1], [1, 2])


def test_the_next_file_is_there_before_one_is_full_and_goes_when_it_is_not_needed(
    backend: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("refold.integrations.langgraph.journal.SEGMENT_BYTES", 5_000)
    tenure = Tenure("t")
    journal = Journal(tmp_path)
    journal.prepare()
    assert len(list(tmp_path.iterdir())) == 1, "there is room enough in the first one"
    kept = [journal.hand([written(seq, text="x" * 1_000)], tenure) for seq in range(1, 4)]
    journal.push()
    for _ in range(2):
        journal.prepare()
        assert len(list(tmp_path.iterdir())) == 2
    kept += [journal.hand([written(seq, text="x" * 1_000)], tenure) for seq in range(4, 8)]
    journal.push()
    assert [future.result(LONG_S) for future in kept] == [None] * 7
    assert len(list(tmp_path.iterdir())) == 2
    journal.prepare()
    journal.close()
    with ahead(backend, tmp_path) as later:
        assert later.flush(LONG_S)
    assert numbers(backend) == list(range(1, 8))
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_made_ahead_too_late_is_not_used(tmp_path: Path) -> None:
    """Files are adopted in the order of their names: nothing may stand in an older one than what came before it."""

    def line(number: int) -> bytes:
        return orjson.dumps(written(number, text="x" * 1_000))

    spool = Spool(tmp_path, segment_bytes=2_000)
    spool.append([line(1)])
    assert spool.wants_segment
    late = spool.new_segment()
    for number in (2, 3):  # meanwhile the first file gets full, and the next one begins
        spool.append([line(number)])
    spool.give_segment(late)
    for number in (4, 5, 6):
        spool.append([line(number)])
    spool.close()
    later = Spool(tmp_path, segment_bytes=2_000)
    later.adopt()
    assert [orjson.loads(one)["seq"] for one in later.lines()] == [1, 2, 3, 4, 5, 6]
    later.close()


def test_a_folder_that_cannot_be_used_is_told_at_once(backend: FakeBackend, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(RefoldError, match=r"file cannot be used .*name one on a local disk"),
        ahead(backend, tmp_path / "file"),
    ):
        pass


def test_files_go_when_they_were_sent(backend: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a process saves, it keeps what waits, and one segment."""
    monkeypatch.setattr("refold.integrations.langgraph.journal.SEGMENT_BYTES", 5_000)
    tenure = Tenure("t")
    with ahead(backend, tmp_path) as journal:
        backend.fault = 503
        save(journal, tenure, *range(1, 31), text="x" * 500)
        assert len(list(tmp_path.iterdir())) > 3
        backend.fault = 0
        assert journal.flush(LONG_S)
        save(journal, tenure, 31)
        assert journal.flush(LONG_S)
        assert len(list(tmp_path.iterdir())) <= 2
    assert numbers(backend) == list(range(1, 32))
    assert list(tmp_path.iterdir()) == []


def test_a_forked_process_leaves_the_journal_to_its_parent(backend: FakeBackend, tmp_path: Path) -> None:
    """And to those who come after: while it lives on, it holds none of the files."""
    tenure = Tenure("t")
    told, tell = os.pipe()
    born, bear = os.pipe()
    backend.fault = 503
    with ahead(backend, tmp_path) as journal:
        save(journal, tenure, 1)
        child = os.fork()
        if not child:
            os.close(tell)
            try:
                journal.hand([written(2)], tenure)
            except RefoldError as error:
                os.write(bear, b"!")
                os.read(told, 1)  # until the parent says so
                os._exit(7 if "in each process" in str(error) and not journal.waits("t") else 1)
            os._exit(2)
        os.close(bear)
        os.read(born, 1)  # it has let go by now, however busy the machine is
        os.close(born)
        save(journal, tenure, 2)
    with ahead(backend, tmp_path) as journal:
        assert [len(events) for events in journal.inherited().values()] == [2]
        os.close(tell)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        backend.fault = 0
        assert journal.flush(LONG_S)
    os.close(told)
    assert numbers(backend) == [1, 2]
