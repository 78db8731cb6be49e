"""LangGraph with a local journal: safe on this machine at once, in the backend a moment later, never forked."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.test_utils import generate_config
from refold import Conflict, Unavailable
from refold.address import find
from refold.integrations.langgraph import RefoldSaver, ahead
from refold.options import own_folder

from tests.acceptance.test_langgraph import KILLED, Blocking, agent, ended, newest, put
from tests.instance import Instance, running_instance

NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running_instance(tmp_path_factory.mktemp("langgraph") / "data") as running:
        yield running


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing goes to the backend before somebody waits for that."""
    monkeypatch.setattr(ahead, "QUIET_S", 3600.0)
    monkeypatch.setattr(ahead, "GATHER_S", 3600.0)


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def copy(source: Path, source_url: str, target: Path, target_url: str) -> None:
    """Bring what waits for one address to where it waits for another."""
    shutil.copytree(own_folder(source, find(source_url), ""), own_folder(target, find(target_url), ""))


@pytest.mark.parametrize("way", ["async", "sync"])
def test_the_checkpointer_conforms(instance: Instance, tmp_path: Path, way: str) -> None:
    @checkpointer_test(name=f"Refold, written ahead, {way}")
    async def factory() -> Any:
        async with RefoldSaver(instance.url, write_ahead=tmp_path) as opened:
            yield opened if way == "async" else Blocking(opened)

    report = asyncio.run(validate(factory))
    assert {name: found.failures for name, found in report.results.items() if found.passed is not True} == {}
    assert len(report.results) == 8
    assert files(tmp_path) == []


def test_a_graph_killed_before_its_state_was_sent_goes_on(instance: Instance, tmp_path: Path) -> None:
    """The backend knows nothing of it; the next process finds all in the folder, and does nothing twice."""
    thread, ledger, folder = instance.name("t"), tmp_path / "ledger", tmp_path / "ahead"
    dying = agent(instance, thread, ledger, "start", "beside", "--ahead", str(folder), "--hold")
    assert ended(dying)[0] == KILLED
    assert ledger.read_text().split() == ["plan", "book"]
    assert instance.http.get(f"/v1/threads/{thread}").status_code == 404
    code, out = ended(agent(instance, thread, ledger, "resume", "", "--ahead", str(folder)))
    assert code == 0
    assert ledger.read_text().split() == ["plan", "book", "beside", "report"]
    assert out.strip() == "{'done': ['plan', 'beside', 'book', 'report']}"
    assert files(folder) == []
    with RefoldSaver(instance.url) as elsewhere:
        assert len(list(elsewhere.list(generate_config(thread)))) == 5


def test_others_see_it_when_it_has_arrived(instance: Instance, tmp_path: Path, held: None) -> None:
    thread = instance.name("t")
    with RefoldSaver(instance.url, write_ahead=tmp_path) as saver, RefoldSaver(instance.url) as elsewhere:
        config = put(saver, thread, values={"a": 1})
        saver.put_writes(config, [("a", 2)], "w1")
        assert newest(saver, thread).pending_writes == [("w1", "a", 2)]
        assert saver.get_tuple(config) is not None, "by its id, too"
        assert (saver.backlog().events, elsewhere.backlog().events) == (2, 0)
        assert elsewhere.get_tuple(generate_config(thread)) is None
        assert saver.flush() and elsewhere.flush()
        assert (saver.backlog().events, newest(elsewhere, thread)) == (0, newest(saver, thread))
        put(elsewhere, thread, config, values={"a": 3})
        assert newest(saver, thread).checkpoint["channel_values"] == {"a": 3}


@pytest.mark.parametrize("told_at", ["put", "get_tuple", "list"])
def test_of_two_machines_one_goes_on_and_the_other_is_told(
    instance: Instance, tmp_path: Path, held: None, told_at: str
) -> None:
    """When it is found out, that is; what the loser had saved is in a file, and nothing of it in the thread."""
    thread = instance.name("t")
    with RefoldSaver(instance.url, write_ahead=tmp_path) as loser, RefoldSaver(instance.url) as winner:
        first = put(loser, thread)
        assert loser.flush()
        newest(winner, thread)
        second = put(winner, thread, first)
        lost = put(loser, thread, first, values={"a": "x" * 600_000})
        loser.put_writes(lost, [("a", 1)], "w1")
        assert loser.flush(), "nothing of it waits any more"
        calls: dict[str, Callable[[], object]] = {
            "put": lambda: put(loser, thread, lost),
            "get_tuple": lambda: loser.get_tuple(generate_config(thread)),
            "list": lambda: list(loser.list(generate_config(thread))),
        }
        with pytest.raises(Conflict, match=r"has another writer: .* are set aside in .*rejected"):
            calls[told_at]()
        assert newest(loser, thread).config == second
        third = put(loser, thread, second)
        assert [one.config for one in loser.list(generate_config(thread))] == [third, second, first]
        assert [one.config for one in winner.list(generate_config(thread))] == [third, second, first]
    (aside,) = tmp_path.rglob("*.rejected")
    assert aside.read_bytes().count(b"\n") == 6, "four parts, what joins them, and the writes"


def test_what_was_not_sent_is_read_from_the_folder_after_a_restart(
    instance: Instance, tmp_path: Path, held: None
) -> None:
    """While the backend is away, too; what the folder alone does not tell is Unavailable then."""
    new, old = instance.name("new"), instance.name("old")
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    with RefoldSaver(instance.url) as elsewhere:
        base = put(elsewhere, old, values={"a": 1})
    with RefoldSaver(instance.url, write_ahead=first) as saver:
        put(saver, old, base, values={"a": 1, "b": 1}, versions={"a": "1.0", "b": "1.0"}, new=["b"])
        config = put(saver, new, values={"a": "x" * 600_000})
        version = newest(saver, new).checkpoint["channel_versions"]["a"]
        held_now = {"a": "x" * 600_000, "b": 1}
        config = put(saver, new, config, values=held_now, versions={"a": version, "b": "1.0"}, new=["b"])
        saver.put_writes(config, [("b", 2)], "w1")
        expected = newest(saver, new)
        copy(first, instance.url, second, NOWHERE)  # as a crash leaves it
        with RefoldSaver(NOWHERE, write_ahead=second, timeout_s=0.4) as offline:
            assert newest(offline, new) == expected
            with pytest.raises(Unavailable, match="has not reached the backend"):
                newest(offline, old)
            offline.put_writes(config, [("b", 3)], "w2")
            assert len(newest(offline, new).pending_writes or ()) == 2
        copy(second, NOWHERE, third, instance.url)
        with RefoldSaver(instance.url, write_ahead=third) as anew:
            assert newest(anew, new).pending_writes == [("w1", "b", 2), ("w2", "b", 3)]
            assert newest(anew, old).parent_config == base
    assert not files(first) and not files(third), "what both sent is in once"


def test_orgs_that_share_a_folder_do_not_meet(instance: Instance, tmp_path: Path, held: None) -> None:
    """What a dead process of one organisation left, no saver of another one sends or reads."""
    thread, alive, dead = instance.name("t"), tmp_path / "alive", tmp_path / "dead"
    with RefoldSaver(instance.url, org="acme", write_ahead=alive) as ours:
        put(ours, thread, values={"a": 1})
        shutil.copytree(alive, dead)
        (left,) = files(dead)
        with RefoldSaver(instance.url, org="rival", write_ahead=dead) as theirs:
            assert theirs.flush() and theirs.get_tuple(generate_config(thread)) is None
        assert files(dead) == [left]
    with RefoldSaver(instance.url, org="acme", write_ahead=dead) as again:
        assert newest(again, thread).checkpoint["channel_values"] == {"a": 1}
    assert files(dead) == []


def test_giving_up_and_copying_wait_for_what_was_not_sent(instance: Instance, tmp_path: Path, held: None) -> None:
    thread, copy = instance.name("t"), instance.name("copy")
    with RefoldSaver(instance.url, write_ahead=tmp_path, timeout_s=60) as saver:
        first = put(saver, thread, values={"a": 1})
        last = put(saver, thread, first, values={"a": 2}, run_id=thread)
        saver.copy_thread(thread, copy)
        assert newest(saver, copy).checkpoint["channel_values"] == {"a": 2}
        saver.prune([thread])
        assert [one.config for one in saver.list(generate_config(thread))] == [last]
        last = put(saver, thread, last, values={"a": 3})
        saver.delete_for_runs([thread])
        assert [one.config for one in saver.list(generate_config(thread))] == [last]
        assert [one.config for one in saver.list(generate_config(copy))][1:] == []
        put(saver, thread, last, values={"a": 4})
        saver.delete_thread(thread)
        assert saver.get_tuple(generate_config(thread)) is None
        put(saver, thread, values={"a": 5})
    with RefoldSaver(instance.url) as elsewhere:
        assert newest(elsewhere, thread).checkpoint["channel_values"] == {"a": 5}
