"""LangGraph on a running instance: its own conformance suite, graphs killed and resumed, two writers, large state."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.test_utils import generate_checkpoint, generate_config, generate_metadata
from refold import Conflict, Refused, Unavailable
from refold.integrations.langgraph import RefoldSaver

from tests.instance import ROOT, Instance, running_instance, until

AGENT = Path(__file__).parent / "graph_agent.py"
KILLED = -9
PROCESS_S = 90


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running_instance(tmp_path_factory.mktemp("langgraph") / "data") as running:
        yield running


@pytest.fixture
def saver(instance: Instance) -> Iterator[RefoldSaver]:
    with RefoldSaver(instance.url) as opened:
        yield opened


# ---- the suite that LangGraph gives to the writers of checkpointers


class Blocking(BaseCheckpointSaver[str]):
    """The suite calls async methods only: each of these calls its sync twin."""

    def __init__(self, saver: RefoldSaver) -> None:
        super().__init__()
        self._saver = saver

    async def aget_tuple(self, config: Any) -> CheckpointTuple | None:
        return self._saver.get_tuple(config)

    async def alist(self, config: Any, **options: Any) -> AsyncIterator[CheckpointTuple]:
        for found in self._saver.list(config, **options):
            yield found

    async def aput(self, *arguments: Any) -> RunnableConfig:
        return self._saver.put(*arguments)

    async def aput_writes(self, *arguments: Any, **options: Any) -> None:
        self._saver.put_writes(*arguments, **options)

    async def adelete_thread(self, thread_id: str) -> None:
        self._saver.delete_thread(thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        self._saver.delete_for_runs(run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self._saver.copy_thread(source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        self._saver.prune(thread_ids, strategy=strategy)


@pytest.mark.parametrize("way", ["async", "sync"])
def test_the_checkpointer_conforms(instance: Instance, way: str) -> None:
    @checkpointer_test(name=f"Refold, {way}")
    async def factory() -> Any:
        async with RefoldSaver(instance.url) as opened:
            yield opened if way == "async" else Blocking(opened)

    report = asyncio.run(validate(factory))
    assert {name: found.failures for name, found in report.results.items() if found.passed is not True} == {}
    assert len(report.results) == 8


# ---- graphs that die


def agent(
    instance: Instance, thread: str, ledger: Path, mode: str, kill: str = "", *options: str
) -> subprocess.Popen[bytes]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "sdk" / "python"), str(ROOT)))}
    return subprocess.Popen(
        [sys.executable, str(AGENT), instance.url, thread, str(ledger), mode, "--kill", kill, *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env,
    )  # fmt: skip


def ended(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    out, err = process.communicate(timeout=PROCESS_S)
    assert process.returncode in (0, KILLED), err.decode()
    return process.returncode, out.decode()


def test_a_graph_killed_in_mid_run_goes_on_in_another_process(instance: Instance, tmp_path: Path) -> None:
    """What has happened does not happen again: neither finished steps, nor the finished branch of a step cut off."""
    thread, ledger = instance.name("t"), tmp_path / "ledger"
    assert ended(agent(instance, thread, ledger, "start", "beside"))[0] == KILLED
    assert ledger.read_text().split() == ["plan", "book"]
    code, out = ended(agent(instance, thread, ledger, "resume"))
    assert code == 0
    assert ledger.read_text().split() == ["plan", "book", "beside", "report"]
    assert out.strip() == "{'done': ['plan', 'beside', 'book', 'report']}", "branches count in the order of their names"


def test_a_graph_that_waits_for_a_person_goes_on_in_another_process(instance: Instance, tmp_path: Path) -> None:
    thread, ledger = instance.name("t"), tmp_path / "ledger"
    _, asked = ended(agent(instance, thread, ledger, "ask"))
    assert "may I?" in asked
    _, answered = ended(agent(instance, thread, ledger, "answer"))
    assert "approved:yes" in answered
    assert sorted(ledger.read_text().split()) == ["beside", "book", "plan", "report"]


# ---- two writers


def test_of_processes_that_write_one_thread_one_goes_on(instance: Instance, tmp_path: Path, saver: RefoldSaver) -> None:
    thread, ledger = instance.name("t"), tmp_path / "ledger"
    first = put(saver, thread)
    racers = [agent(instance, thread, ledger, "race") for _ in range(2)]
    until(lambda: ledger.exists() and ledger.read_text().count("here") == len(racers), PROCESS_S)
    ledger.with_suffix(".go").touch()
    outs = sorted(ended(racer)[1] for racer in racers)
    assert [out.split(",")[0] for out in outs] == ["('lost'", "('won'"]
    assert "has another writer" in outs[0] and "Invoke the graph again" in outs[0]
    found = list(saver.list(generate_config(thread)))
    assert [one.parent_config for one in found] == [first, None]


def test_a_run_that_was_overtaken_saves_nothing_more(instance: Instance) -> None:
    """Not after a look at the newest state either, nor in a namespace of its own: it was asked for something older."""
    thread = instance.name("t")
    with RefoldSaver(instance.url) as sleeper, RefoldSaver(instance.url) as other:
        mine = put(sleeper, thread)
        other.get_tuple(generate_config(thread))
        theirs = put(other, thread, mine)
        with pytest.raises(Conflict, match="another writer"):
            sleeper.put_writes(mine, [("a", "x" * 600_000)], "w1")  # in parts: none of them is stored either
        with pytest.raises(Conflict, match="another writer"):
            put(sleeper, thread, mine)
        sleeper.get_tuple(generate_config(thread, checkpoint_ns="child:1"))
        with pytest.raises(Conflict, match="another writer"):
            put(sleeper, thread, None, namespace="child:1")
        assert newest(sleeper, thread).config == theirs
        with pytest.raises(Conflict, match="goes on from"):
            put(sleeper, thread, mine)
        put(sleeper, thread, theirs)
        with pytest.raises(Conflict, match="another writer"):
            put(other, thread, theirs)
        assert [one.parent_config for one in other.list(generate_config(thread))] == [theirs, mine, None]
    events = instance.http.get(f"/v1/runs/thread:{thread}/events").json()["items"]
    assert [event["type"] for event in events] == ["thread.advanced"] * 3


def test_an_older_checkpoint_that_was_asked_for_may_be_forked(saver: RefoldSaver, instance: Instance) -> None:
    thread = instance.name("t")
    first = put(saver, thread)
    put(saver, thread, first)
    assert saver.get_tuple(first) is not None
    fork = put(saver, thread, first)
    assert newest(saver, thread).config == fork


def test_a_read_sees_what_another_process_wrote(instance: Instance) -> None:
    """What is in memory is not taken for the newest while it is not."""
    thread = instance.name("t")
    with RefoldSaver(instance.url) as one, RefoldSaver(instance.url) as two:
        config = put(one, thread, values={"a": 0})
        for number in range(1, 7):
            writer = (one, two)[number % 2]
            assert newest(writer, thread).checkpoint["channel_values"] == {"a": number - 1}
            config = put(writer, thread, config, values={"a": number})
            writer.put_writes(config, [("b", number)], "w1")
            for reader in (one, two):
                assert newest(reader, thread).pending_writes == [("w1", "b", number)]


def test_writes_of_many_threads_at_once_all_arrive(saver: RefoldSaver, instance: Instance) -> None:
    thread = instance.name("t")
    config = put(saver, thread)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: saver.put_writes(config, [("a", n), ("b", -n)], f"w{n:03}", "path"), range(60)))
    with RefoldSaver(instance.url) as fresh:
        pending = newest(fresh, thread).pending_writes
    assert pending == [(f"w{n:03}", name, value) for n in range(60) for name, value in (("a", n), ("b", -n))]
    assert newest(saver, thread).pending_writes == pending


# ---- what comes back


def test_large_and_odd_values_come_back_exactly(saver: RefoldSaver, instance: Instance) -> None:
    """A 5 MB channel goes in parts; what is no JSON, or what the door would replace, arrives as it is."""
    thread = instance.name("t")
    values = {
        "large": os.urandom(5_000_000),
        "text": "\0 \\u0000 日本語 👩‍👩‍👧",
        "number": 2**64 - 1,
        "when": datetime(2026, 3, 1, tzinfo=UTC),
        "none": None,
    }
    extra: dict[str, Any] = {
        "odd": {"a": datetime(2026, 3, 1, tzinfo=UTC)},
        "nan": float("inf"),
        "big": 2**64 - 1,
        "run_id": "r",
    }
    config = put(saver, thread, values=values, **extra)
    saver.put_writes(config, [("large", values["large"])], "w1")
    with RefoldSaver(instance.url) as fresh:
        found = newest(fresh, thread)
    assert found.checkpoint["channel_values"] == values
    assert found.pending_writes == [("w1", "large", values["large"])]
    assert {name: cast(Any, found.metadata)[name] for name in extra} == extra
    assert [one.config for one in saver.list(None, filter={"big": 2**64 - 1, "run_id": "r"})] == [config]


def test_an_unchanged_value_is_stored_once(saver: RefoldSaver, instance: Instance) -> None:
    thread = instance.name("t")
    config = put(saver, thread, values={"a": "x" * 1000, "b": 0})
    version = newest(saver, thread).checkpoint["channel_versions"]["a"]
    for number in range(1, 4):
        held = {"a": "x" * 1000, "b": number}
        config = put(saver, thread, config, values=held, versions={"a": version, "b": f"{number + 1:032}.0"}, new=["b"])
        with RefoldSaver(instance.url) as fresh:
            assert newest(fresh, thread).checkpoint["channel_values"] == held
        assert newest(saver, thread).checkpoint["channel_values"] == held
    events = instance.http.get(f"/v1/runs/thread:{thread}/events").json()["items"]
    assert [[value[0] for value in event["data"]["values"]] for event in events] == [["a", "b"], ["b"], ["b"], ["b"]]


def test_lists_come_in_pages_newest_first(saver: RefoldSaver, instance: Instance) -> None:
    thread, config, made = instance.name("t"), None, []
    for number in range(45):
        config = put(saver, thread, config, step=number % 3)
        made.append(config)
    found = list(saver.list(generate_config(thread)))
    assert [one.config for one in found] == made[::-1]
    some = list(saver.list(generate_config(thread), filter={"step": 1}, before=made[40], limit=12))
    assert [one.config for one in some] == [made[n] for n in range(39, -1, -1) if n % 3 == 1][:12]
    assert list(saver.list(generate_config(thread), limit=0)) == []


def test_orgs_are_walls(instance: Instance) -> None:
    thread = instance.name("t")
    with RefoldSaver(instance.url, org="acme") as ours, RefoldSaver(instance.url, org="rival") as theirs:
        put(ours, thread, values={"a": 1}, run_id="wall")
        assert theirs.get_tuple(generate_config(thread)) is None
        assert list(theirs.list(None)) == [] and list(theirs.list(generate_config(thread))) == []
        put(theirs, thread, values={"a": 2}, run_id="wall")
        theirs.delete_for_runs(["wall"])
        theirs.delete_thread(thread)
        assert newest(ours, thread).checkpoint["channel_values"] == {"a": 1}


def test_what_was_given_up_is_gone_from_the_read_model_too(saver: RefoldSaver, instance: Instance) -> None:
    thread = instance.name("t")
    config = put(saver, thread, values={"a": 1})
    saver.put_writes(config, [("a", 2)], "w1")
    saver.delete_thread(thread)
    assert saver.get_tuple(generate_config(thread)) is None
    rows = instance.refold("rows", "threads", "thread_values", "--key", f"task/thread:{thread}", "--json")
    assert rows.returncode == 0, rows.stderr
    assert rows.stdout.strip() in (b"", b"[]")
    put(saver, thread, values={"a": 3})
    assert newest(saver, thread).checkpoint["channel_values"] == {"a": 3}


def test_a_run_does_not_go_on_from_what_was_deleted_meanwhile(saver: RefoldSaver, instance: Instance) -> None:
    """Of the values that it has in common with its parent nothing would be left. A new run begins as ever."""
    thread = instance.name("t")
    config = put(saver, thread, values={"a": 1, "b": 1})
    versions = newest(saver, thread).checkpoint["channel_versions"]
    saver.delete_thread(thread)
    with pytest.raises(Conflict, match="was given up while a run went on from it"):
        put(saver, thread, config, values={"a": 1, "b": 2}, versions=versions, new=["b"])
    with pytest.raises(Conflict, match="was given up"):
        saver.put_writes(config, [("a", 2)], "w1")
    assert saver.get_tuple(generate_config(thread)) is None
    anew = put(saver, thread, values={"a": 3})
    put(saver, thread, anew, values={"a": 4}, run_id="r")
    saver.delete_for_runs(["r"])
    assert newest(saver, thread).config == anew
    last = put(saver, thread, anew, values={"a": 5})
    saver.prune([thread])
    put(saver, thread, last, values={"a": 6})
    assert [one.checkpoint["channel_values"] for one in saver.list(generate_config(thread))] == [{"a": 6}, {"a": 5}]


def test_pruning_takes_what_others_wrote_for_what_it_is(instance: Instance) -> None:
    """Whoever last read the thread before others wrote on may give it up all the same."""
    thread = instance.name("t")
    with RefoldSaver(instance.url) as janitor, RefoldSaver(instance.url) as writer:
        first = put(writer, thread)
        newest(janitor, thread)
        last = put(writer, thread, first)
        janitor.prune([thread])
        assert [one.config for one in writer.list(generate_config(thread))] == [last]
        with pytest.raises(Conflict, match="another writer"):
            writer.put_writes(last, [("a", 1)], "w1")
        put(writer, thread, newest(writer, thread).config)
        janitor.delete_thread(thread)
        assert writer.get_tuple(generate_config(thread)) is None


@pytest.mark.parametrize("by_the_same", [False, True])
def test_pruning_spares_what_is_saved_meanwhile(instance: Instance, by_the_same: bool) -> None:
    """A checkpoint that comes in after the list of those to keep was made stays."""

    class Janitor(RefoldSaver):
        def _kept(self, thread: str) -> dict[str, Any]:
            listed = super()._kept(thread)
            if len(saved) == 1:
                saved.append(put(writer, thread, saved[0], values={"a": 2}))
            return listed

    thread = instance.name("t")
    with Janitor(instance.url) as janitor, RefoldSaver(instance.url) as other:
        writer = janitor if by_the_same else other
        saved = [put(writer, thread, values={"a": 1})]
        janitor.prune([thread])
        kept = newest(other, thread)
        assert (kept.config, kept.checkpoint["channel_values"]) == (saved[1], {"a": 2})
        assert [one.config for one in other.list(generate_config(thread))] == saved[1:]


def test_a_fresh_fold_is_equal(instance: Instance, saver: RefoldSaver) -> None:
    """After all that the tests above did, when they ran."""
    put(saver, instance.name("t"), values={"a": 1})
    done = instance.refold("verify", "threads", "items", "--json")
    assert done.returncode == 0, done.stdout + done.stderr


# ---- errors that help


def test_errors_say_what_to_do(instance: Instance, saver: RefoldSaver) -> None:
    with pytest.raises(ValueError, match="at most 240 characters"):
        put(saver, "t" * 241)
    for odd in ("a\0", "\ud800"):
        with pytest.raises(ValueError, match="holds a NUL"):
            put(saver, instance.name("t"), values={odd: 1})
        with pytest.raises(ValueError, match="holds a NUL"):
            put(saver, instance.name("t"), namespace=odd)
    with pytest.raises(ValueError, match="inbox"):
        RefoldSaver("redis://127.0.0.1:1")
    with pytest.raises(ValueError, match="strategy"):
        saver.prune(["t"], strategy="keep_some")
    with RefoldSaver("http://127.0.0.1:9", timeout_s=1) as lost, pytest.raises(Unavailable, match="refold up"):
        lost.get_tuple(generate_config("t"))
    with pytest.raises(Refused, match="writer"):
        saver.put_writes(put(saver, instance.name("t")), [("a", 1)], "")


# ---- helpers


def put(
    saver: RefoldSaver,
    thread: str,
    parent: RunnableConfig | None = None,
    *,
    namespace: str = "",
    values: dict[str, Any] | None = None,
    versions: dict[str, Any] | None = None,
    new: list[str] | None = None,
    **metadata: Any,
) -> RunnableConfig:
    held = values or {}
    version = {name: saver.get_next_version(None, None) for name in held} if versions is None else versions
    checkpoint = generate_checkpoint(checkpoint_id=str(uuid6()), channel_values=held, channel_versions=version)
    config = generate_config(thread, checkpoint_ns=namespace)
    if parent is not None:
        config["configurable"]["checkpoint_id"] = parent["configurable"]["checkpoint_id"]
    fresh = {name: version[name] for name in new} if new is not None else version
    return saver.put(config, checkpoint, generate_metadata(**{"step": 0, **metadata}), fresh)


def newest(saver: RefoldSaver, thread: str) -> CheckpointTuple:
    found = saver.get_tuple(generate_config(thread))
    assert found is not None
    return found
