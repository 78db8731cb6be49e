"""The sync client against a small backend on loopback: block ends, numbering, faults, spool, conflicts."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from refold import Conflict, NoCheckpoint, Policy, Refold, Refused, Resume, Unavailable, UncertainEffect, Wait
from refold.address import DEFAULT_URL, find

from services.reactors.trajectory import MAX_DETAIL
from tests.sdk_backend import FakeBackend

QUICK = Policy(backoff_s=0.02, backoff_max_s=0.05)


@pytest.fixture
def client(backend: FakeBackend, tmp_path: Path) -> Iterator[Refold]:
    with make(backend.url, tmp_path) as made:
        yield made


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def make(url: str, tmp_path: Path, **how: Any) -> Refold:
    how = {"agent": "a", "user": "u", "session": "s", "policy": QUICK, "timeout_s": 5.0, **how}
    return Refold(url, spool=tmp_path / "spool", **how)


def lines_in(folder: Path) -> int:
    return sum(len(path.read_bytes().splitlines()) for path in folder.rglob("*.jsonl"))


def test_a_run_in_its_own_words(backend: FakeBackend, client: Refold) -> None:
    with client.run("make tea", task="tea", settles="agent") as run:
        run.plan(["boil", {"id": "pour", "title": "Pour it"}])
        with run.step("boil", "Boil water") as step:
            with run.tool("kettle", {"litres": 1}) as call:
                call.result = {"temperature": 100}
            step.summary = "boiled"
        run.decide("green", alternatives=["black"], rationale="asked for")
        run.message("user", "green, please")
        run.note("cups", 2, ttl_s=60)
        run.feedback("good", score=1, by="u")
        run.artifact("pot", uri="file:///pot", size_bytes=3)
        run.block("milk", "none left")
        run.unblock("milk", "bought")
        run.checkpoint({"at": 3}, milestone=True)
        run.responded("m", tokens_in=3, cost=0.5)
        run.remember("likes green tea", kind="preference")
        run.heartbeat()
        run.skip("pour", "no pot")
        run.request_approval("sugar", action="add")
        run.resolve_approval("sugar", approved=False)
        run.settle({"goal": "make tea"}, memories=[{"content": "green"}], reflections=["quick"])
    client.flush()
    counted = [event["seq"] for event in backend.events if "seq" in event]
    assert counted == list(range(1, len(counted) + 1))
    uncounted = [event["type"] for event in backend.events if "seq" not in event]
    assert uncounted == ["memory.proposed", "settlement.recorded"]
    assert backend.types()[0] == "run.started"
    assert backend.types()[-2:] == ["settlement.recorded", "run.terminated"]
    assert backend.data("run.terminated") == [{"reason": "end_turn"}]
    assert backend.data("tool.called")[0]["step"] == "boil"
    assert {event["task"] for event in backend.events} == {"tea"}
    assert {(event["agent"], event["user"], event["session"]) for event in backend.events} == {("a", "u", "s")}


def test_how_a_block_ends_is_how_the_run_ends(backend: FakeBackend, client: Refold) -> None:
    ends: list[tuple[BaseException, str]] = [
        (KeyboardInterrupt(), "interrupt"),
        (SystemExit(0), "interrupt"),
        (TimeoutError(), "timeout"),
        (ValueError("x"), "panic_stop"),
    ]
    for error, reason in ends:
        with pytest.raises(type(error)), client.run("g"), _raising(error):
            pass
        assert backend.data("run.terminated")[-1]["reason"] == reason


def test_failures_in_a_row_are_an_error_streak(backend: FakeBackend, client: Refold) -> None:
    def fail_three_times() -> None:
        with client.run("g") as run:
            for _ in range(3):
                try:
                    with run.tool("flaky"):
                        raise OSError("no")
                except OSError:
                    pass
            raise RuntimeError("given up")

    with pytest.raises(RuntimeError):
        fail_three_times()
    assert backend.data("run.terminated")[-1]["reason"] == "error_streak"
    assert [data["error"] for data in backend.data("tool.failed")] == ["OSError: no"] * 3


def test_a_run_that_ends_by_the_error_of_a_call_says_so_in_the_same_words(backend: FakeBackend, client: Refold) -> None:
    """By which hindsight knows it: what ended by a call's failure failed, where what was stopped did not."""
    with pytest.raises(TimeoutError), client.run("g") as run, run.tool("pay"):
        raise TimeoutError("504 " + "x" * 3_000)
    (failed,), (ended,) = backend.data("tool.failed"), backend.data("run.terminated")
    assert ended["detail"] == failed["error"][:MAX_DETAIL] and ended["reason"] == "timeout"


def test_an_interrupted_step_neither_completes_nor_fails(backend: FakeBackend, client: Refold) -> None:
    with pytest.raises(KeyboardInterrupt), client.run("g") as run, run.step("s"), run.tool("t"):
        raise KeyboardInterrupt
    assert backend.types() == ["run.started", "step.started", "tool.called", "run.terminated"]


def test_an_explicit_end_is_the_end(backend: FakeBackend, client: Refold) -> None:
    with client.run("g") as run:
        run.terminate("budget_exhausted", outcome="blocked", detail="out of tokens")
    assert backend.data("run.terminated") == [
        {"reason": "budget_exhausted", "outcome": "blocked", "detail": "out of tokens"}
    ]


def test_a_side_effect_is_recorded_before_it_happens(backend: FakeBackend, client: Refold) -> None:
    with client.run("g") as run, run.tool("pay", {"n": 1}, side_effect=True) as call:
        assert backend.types()[-1] == "tool.called"
        assert backend.data("tool.called")[0]["idempotency_key"] == call.key


def test_without_a_backend_no_side_effect_happens_and_the_agent_goes_on(backend: FakeBackend, tmp_path: Path) -> None:
    done = []
    with make(backend.url, tmp_path, timeout_s=0.4) as client, client.run("g") as run:
        backend.fault = 503
        run.note("k", "published while away")
        with pytest.raises(Unavailable), run.tool("pay", side_effect=True):
            done.append("paid")
        backend.fault = 0
    assert done == []
    assert backend.data("tool.failed")[0]["error"].startswith("not called")
    assert backend.types()[-1] == "run.terminated"


def test_events_wait_on_disk_and_the_next_process_delivers_them_in_order(backend: FakeBackend, tmp_path: Path) -> None:
    backend.fault = 503
    with make(backend.url, tmp_path) as client, client.run("g", task="t") as run:
        for n in range(500):
            run.note(f"k{n}", n)
    assert backend.events == []
    assert lines_in(tmp_path) == 502
    backend.fault = 0
    with make(backend.url, tmp_path) as client:
        assert client.flush()
    assert [event["seq"] for event in backend.events] == list(range(1, 503))
    assert lines_in(tmp_path) == 0


def test_the_backend_comes_back_within_the_run(backend: FakeBackend, client: Refold) -> None:
    with client.run("g") as run:
        backend.fault = 500
        with run.step("one"):
            run.note("a", 1)
        backend.fault = 0
        with run.step("two"):
            run.note("b", 2)
    assert client.flush()
    assert [event["seq"] for event in backend.events] == list(range(1, 9))


def test_an_answer_that_is_lost_is_asked_for_again_with_the_same_ids(backend: FakeBackend, client: Refold) -> None:
    """C13: sent twice, stored once."""
    with client.run("g") as run:
        backend.lose_answers = 2
        run.note("a", 1)
        run.note("b", 2)
    assert client.flush()
    assert backend.types() == ["run.started", "note.written", "note.written", "run.terminated"]


def test_a_refused_event_leaves_no_hole_and_is_told_of(backend: FakeBackend, client: Refold) -> None:
    backend.refuse = {"decision.made"}
    with client.run("g") as run:
        run.decide("x")
        run.note("after", 1)
    assert client.flush()
    assert backend.types() == ["run.started", "publication.refused", "note.written", "run.terminated"]
    assert backend.data("publication.refused")[0]["type"] == "decision.made"


def test_a_refused_start_or_side_effect_is_raised(backend: FakeBackend, client: Refold) -> None:
    backend.refuse = {"run.started"}
    with pytest.raises(Refused, match=r"no run\.started today"), client.run("g"):
        pass
    backend.refuse = {"tool.called"}
    done = []
    with client.run("g") as run, pytest.raises(Refused), run.tool("pay", side_effect=True):
        done.append(1)
    assert done == []


def test_of_two_that_resume_one_task_one_gets_the_conflict(backend: FakeBackend, client: Refold) -> None:
    with pytest.raises(ValueError, match="crash"), client.run("g", task="t"):
        raise ValueError("crash")
    first, second = client.run(task="t", resume=True), client.run(task="t", resume=True)
    with first:
        assert first.attempt == 2
        assert first.resumed is not None
        earlier = Resume("t", attempt=1)  # what the second one read before the first one started
        with pytest.raises(Conflict, match=first.id):
            second.record(second.core.start(earlier))
        first.note("goes", "on")
    assert backend.types(second.id) == []


def test_an_older_attempt_can_add_only_late_results(backend: FakeBackend, client: Refold) -> None:
    """C20: the result of a call that outlived its run is accepted, marked late."""
    old = client.run("g", task="t").__enter__()
    call = old.tool("slow", {"x": 1}, side_effect=True)
    core = call.__enter__()
    with client.run(task="t", resume=True) as new:
        assert [earlier.call_id for earlier in new.resumed.in_flight] == [core.call_id] if new.resumed else False
        core.result = "done at last"
        with pytest.raises(Conflict, match=new.id):
            call.__exit__(None, None, None)
        with pytest.raises(Conflict):
            old.note("zombie", 1)
    client.flush()
    assert backend.data("tool.returned") == [
        {"call_id": core.call_id, "name": "slow", "result": "done at last", "late": True}
    ]


def test_a_run_without_resume_does_not_take_a_running_task(client: Refold) -> None:
    with client.run("g", task="t"), pytest.raises(Conflict, match="attempt 1 is run"), client.run("g", task="t"):
        pass


def test_resume_of_nothing(client: Refold) -> None:
    with pytest.raises(NoCheckpoint, match="no_checkpoint"):
        client.resume("unknown")
    with client.run("g", task="new", resume=True) as run:
        assert run.attempt == 1
        assert run.pending(["a", "b"]) == ["a", "b"]


def test_resume_needs_an_answer(backend: FakeBackend, tmp_path: Path) -> None:
    backend.fault = 503
    with (
        make(backend.url, tmp_path, timeout_s=0.3) as client,
        pytest.raises(Unavailable, match=f"{backend.url}.*: HTTP 503"),
    ):
        client.run("g", task="t", resume=True).__enter__()


AGENT = """
from refold import Refold
with Refold(agent="a", timeout_s=1) as client, client.run("g", task="t", resume=True) as run:
    run.note("k", 1)
"""


def test_an_agent_without_a_backend_ends_in_one_clear_message(free_port: int, tmp_path: Path) -> None:
    """Not in what the HTTP library went through."""
    url = f"http://somebody:secret@127.0.0.1:{free_port}"
    environ = {**os.environ, "REFOLD_URL": url, "REFOLD_SPOOL": str(tmp_path / "spool")}
    agent = subprocess.run([sys.executable, "-c", AGENT], env=environ, capture_output=True, text=True, timeout=60)
    assert agent.returncode == 1
    *trace, message = agent.stderr.strip().splitlines()
    assert message.startswith(f"refold.errors.Unavailable: no answer from http://127.0.0.1:{free_port} (")
    assert "refold up" in message and "REFOLD_URL" in message
    assert "secret" not in agent.stderr and "httpx" not in agent.stderr
    assert len(trace) < 20


def test_unsent_events_of_earlier_attempts_are_named_with_their_place(free_port: int, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port}"
    with make(url, tmp_path, timeout_s=0.3) as client, client.run("g", task="t") as run:
        with pytest.raises(Unavailable) as raised, run.tool("pay", side_effect=True):
            raise AssertionError("no effect without its record")
        assert url in str(raised.value) and str(tmp_path / "spool") in str(raised.value)
    with make(url, tmp_path, timeout_s=0.3) as client:
        client.flush = lambda timeout_s=0.1: Refold.flush(client, timeout_s)  # type: ignore[method-assign]
        with pytest.raises(Unavailable, match="left unsent") as raised:
            client.run("g", task="t", resume=True).__enter__()
        assert url in str(raised.value) and str(tmp_path / "spool") in str(raised.value)


def test_the_organisation_of_the_environment_is_acted_for(
    backend: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by the command line, so that the one finds what the other published."""
    monkeypatch.setenv("REFOLD_ORG", "acme")
    for org in ("", "globex"):
        with make(backend.url, tmp_path, org=org) as client, client.run("g"):
            pass
    assert [event["org"] for event in backend.events] == ["acme", "acme", "globex", "globex"]


def test_the_instance_of_the_data_folder_is_found(
    backend: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its port; and what waits for it is sent when it comes back at another one."""
    for name in ("REFOLD_URL", "REFOLD_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    assert find().url == DEFAULT_URL
    announced = tmp_path / ".refold" / "instance.json"
    announced.parent.mkdir()
    announced.write_bytes(orjson.dumps({"pid": 1, "url": ""}))
    assert find().url == DEFAULT_URL, "it is not ready"
    announced.write_bytes(orjson.dumps({"pid": 1, "url": "http://127.0.0.1:9"}))
    with Refold(spool=tmp_path / "spool", policy=QUICK, timeout_s=0.3) as client, client.run("g"):
        pass
    announced.write_bytes(orjson.dumps({"pid": 2, "url": backend.url, "redis_url": ""}))
    with Refold(spool=tmp_path / "spool", policy=QUICK) as client:
        assert client.flush()
    assert backend.types() == ["run.started", "run.terminated"]
    monkeypatch.setenv("REFOLD_DATA", str(tmp_path / "elsewhere"))
    assert find().url == DEFAULT_URL
    monkeypatch.setenv("REFOLD_DATA", str(announced.parent))
    assert find().url == backend.url
    monkeypatch.setenv("REFOLD_URL", "http://named:1")
    assert find().url == "http://named:1"
    assert find("http://given:1").url == "http://given:1"


@pytest.mark.parametrize("happened", [True, False])
def test_an_effect_in_flight_is_asked_for_before_it_is_repeated(
    backend: FakeBackend, client: Refold, happened: bool
) -> None:
    ledger: dict[str, str] = {}

    def interrupted() -> None:
        with (
            client.run("g", task="t") as run,
            run.step("pay"),
            run.tool("pay", {"n": 1}, side_effect=True) as call,
        ):
            if happened:
                ledger[call.key] = "receipt 1"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with client.run(task="t", resume=True) as run, run.step("pay"):
        with pytest.raises(UncertainEffect), run.tool("pay", {"n": 1}, side_effect=True):
            pass
        with run.tool("pay", {"n": 1}, side_effect=True, already_done=ledger.get) as call:
            assert call.done is happened
            if not call.done:
                call.result = ledger[call.key] = "receipt 2"
    client.flush()
    assert list(ledger.values()) == ["receipt 1" if happened else "receipt 2"]
    assert backend.resume("t")["in_flight"] == []  # type: ignore[index]
    assert backend.data("tool.returned")[-1]["result"] == next(iter(ledger.values()))


def test_functions_as_tools(backend: FakeBackend, client: Refold) -> None:
    def add(a: int, b: int = 2) -> int:
        return a + b

    with client.run("g") as run:
        tool = run.tool("add")(add)
        assert (tool(1), tool(1, b=5), run.call("add", add, {"a": 3})) == (3, 6, 5)
    assert [data["arguments"] for data in backend.data("tool.called")] == [{"a": 1, "b": 2}, {"a": 1, "b": 5}, {"a": 3}]
    assert [data["result"] for data in backend.data("tool.returned")] == [3, 6, 5]


def test_threads_share_a_run(backend: FakeBackend, client: Refold) -> None:
    with client.run("g") as run:
        threads = [threading.Thread(target=lambda t=t: [run.note(f"{t}/{n}", n) for n in range(200)]) for t in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    client.flush()
    assert [event["seq"] for event in backend.events] == list(range(1, 1603))
    assert max(backend.requests) > 50, "events are sent in batches"


def test_a_bounded_queue_without_a_spool_makes_the_agent_wait_and_then_tells(
    backend: FakeBackend, caplog: pytest.LogCaptureFixture
) -> None:
    policy = Policy(queue_events=10, backoff_s=0.02)
    with Refold(backend.url, spool=False, policy=policy, timeout_s=0.1) as client, client.run("g") as run:
        backend.fault = 503
        for n in range(12):
            run.note("k", n)
        assert client.dropped == 2
        backend.fault = 0
        assert client.flush()
    assert "the queue is full" in caplog.text
    assert [event["seq"] for event in backend.events] == list(range(1, 13))


def test_a_spool_that_cannot_be_written_is_said_and_memory_keeps_the_events(
    backend: FakeBackend, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "spool").write_text("a file where the folder should be")
    with make(backend.url, tmp_path) as client, client.run("g") as run:
        backend.fault = 503
        run.note("k", 1)
        time.sleep(0.2)
        backend.fault = 0
        assert client.flush()
    assert "the spool cannot be written" in caplog.text
    assert backend.types() == ["run.started", "note.written", "run.terminated"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_sends_its_own_and_nothing_of_its_parent(backend: FakeBackend, tmp_path: Path) -> None:
    program = f"""
import os, sys, time
from refold import Policy, Refold
client = Refold({backend.url!r}, spool={str(tmp_path)!r}, policy=Policy(flush_s=5))
with client.run("parent", task="p") as run:
    run.note("parent", "queued before the fork")
    child = os.fork()
    if child == 0:
        run.note("child", "of the parent's run")
        with client.run("child", task="c"):
            pass
        client.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
client.close()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert sorted(event["data"].get("key", "") for event in backend.events if event["type"] == "note.written") == [
        "child",
        "parent",
    ]
    assert backend.types().count("run.terminated") == 2


def test_a_killed_agents_spool_is_sent_before_its_task_is_resumed(backend: FakeBackend, tmp_path: Path) -> None:
    program = f"""
import time
from refold import Policy, Refold
client = Refold({backend.url!r}, spool={str(tmp_path / "spool")!r}, policy=Policy(backoff_s=30, backoff_max_s=30))
with client.run("g", task="t") as run:
    with run.step("one"):
        pass
    print("ready", flush=True)
    input()
    with run.step("two"):
        pass
    print("stored on disk", flush=True)
    input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as agent:
        assert agent.stdout is not None
        assert agent.stdin is not None
        assert agent.stdout.readline() == "ready\n"
        backend.fault = 503
        agent.stdin.write("\n")
        agent.stdin.flush()
        assert agent.stdout.readline() == "stored on disk\n"
        agent.send_signal(signal.SIGKILL)
    backend.fault = 0
    with make(backend.url, tmp_path) as client, client.run(task="t", resume=True) as run:
        assert run.done("one")
        assert run.done("two"), "its end was only on the dead agent's disk"
        assert run.pending(["one", "two", "three"]) == ["three"]


def test_an_event_outside_any_run(backend: FakeBackend, client: Refold) -> None:
    client.publish("memory.proposed", {"content": "x"}, user="u2", wait=Wait.HARD)
    assert backend.events[0]["user"] == "u2"
    assert "seq" not in backend.events[0]


def test_large_output_is_published_as_head_and_tail(backend: FakeBackend, client: Refold) -> None:
    """C28"""
    with client.run("g") as run, run.tool("cat") as call:
        call.result = "x" * 20_000_000
    assert client.flush()
    assert backend.data("tool.returned")[0]["result"]["bytes"] == 20_000_000
    assert max(len(orjson.dumps(event)) for event in backend.events) < 1 << 20


def test_the_address_comes_from_the_environment(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REFOLD_URL", backend.url)
    with Refold(spool=False) as client, client.run("g"):
        pass
    assert backend.types() == ["run.started", "run.terminated"]


def test_an_address_of_another_kind() -> None:
    with pytest.raises(ValueError, match="http://HOST:PORT"):
        Refold("localhost:8321")


class _raising:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __enter__(self) -> None:
        raise self.error

    def __exit__(self, *_: object) -> None:
        pass
