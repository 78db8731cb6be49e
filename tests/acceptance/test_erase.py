"""Erasing on a real instance: no table has a word of it, old generations neither, and nothing comes back."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import MetaData, select

from events.database import Database, Stores
from projections.registry import PROJECTIONS
from tests.instance import Instance, running_instance, until
from tests.soak import soak

WORD = "zebrafish7731"


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    with running_instance(tmp_path / "data") as running:
        yield running


def live(instance: Instance, run: str, word: str, **names: str) -> str:
    """A run with a plan, calls that lead to each other, words of its user, and an end."""
    told: list[tuple[str, dict[str, Any]]] = [
        ("run.started", {"goal": f"find {word}"}),
        ("message.added", {"role": "user", "content": f"Remember that I prefer {word}. Please be brief about {word}."}),
        ("tool.called", {"call_id": "c1", "name": "search", "arguments": {"q": word}}),
        ("tool.returned", {"call_id": "c1", "name": "search", "result": {"id": f"{word}-42", "name": word}}),
        ("tool.called", {"call_id": "c2", "name": "get", "arguments": {"id": f"{word}-42"}}),
        ("tool.failed", {"call_id": "c2", "name": "get", "error": f"no {word}"}),
        ("decision.made", {"chosen": word, "rationale": f"for {word}"}),
        ("run.terminated", {"reason": "end_turn", "detail": word}),
    ]
    return instance.stored(*(instance.event(run, kind, data, task=f"of-{run}", **names) for kind, data in told))


def tables_with(instance: Instance, word: str) -> dict[str, int]:
    """How many rows of which tables of which stores have a word, in whatever column."""
    stores = Stores(instance.stores_url)
    found: dict[str, int] = {}
    names = {one["name"] for one in instance.http.get("/v1/generations", params={"limit": 1000}).json()["items"]
             if one["state"] != "dropped"}  # fmt: skip
    for db, name in [(stores.log(), "log"), *((stores.generation(name), name) for name in sorted(names))]:
        found |= {f"{name}.{table}": rows for table, rows in _rows_with(db, word).items() if rows}
        db.close()
    return found


def _rows_with(db: Database, word: str) -> dict[str, int]:
    def work(conn: Any) -> dict[str, int]:
        metadata = MetaData()
        metadata.reflect(conn, schema=db.schema)
        return {
            table.name: sum(word in str(tuple(row)) for row in conn.execute(select(table)))
            for table in metadata.sorted_tables
        }

    return db.read_now(work)


def settled(instance: Instance) -> bool:
    """Whether reactors and read models have come to the end of the log."""
    reactors = instance.http.get("/v1/reactors").json()["items"]
    lags = [one["lag_events"] for one in (*reactors, *instance.http.get("/v1/projections").json()["items"])]
    return not any(lags)


@soak
@pytest.mark.timeout(300)
def test_nothing_of_a_user_is_left_and_nothing_of_another_is_lost(instance: Instance) -> None:
    """Tables, a retired generation, refused events, contexts; and all read models are what their log says."""
    live(instance, "own", WORD, user="u1", agent="clerk", session="s1")
    live(instance, "other", "walnuts", user="u2", agent="clerk", session="s2")
    proposed = {"content": f"Likes {WORD}.", "user": "u1", "kind": "preference"}
    assert instance.http.post("/v1/memories", json=proposed).status_code == 200
    context = instance.http.post("/v1/context", json={"task": "of-own", "query": WORD}).json()["context"]
    assert instance.publish({"id": "bad", "type": "tool.called", "run": "own", "data": {"x": WORD}}).status_code == 422
    until(lambda: settled(instance) and "sessions" in str(tables_with(instance, WORD)))
    assert instance.refold("rebuild", "task_state").returncode == 0
    before = tables_with(instance, WORD)
    assert {"log.event_log", "log.refused_events", "task_state__g1.tasks", "task_state__g2.tasks"} <= before.keys()

    dry = json.loads(instance.refold("erase", "--user", "u1", "--json").stdout)
    assert dry["events"] > 10 and tables_with(instance, WORD) == before
    done = instance.refold("erase", "--user", "u1", "--yes", "--by", "me", "--id", "e1", "--json")
    assert done.returncode == 0, done.stderr
    assert {"state": "done", "by": "me", "events": dry["events"]}.items() <= json.loads(done.stdout).items()
    until(lambda: settled(instance))
    assert tables_with(instance, WORD) == {}
    assert {"log.event_log", "task_state__g2.tasks"} <= tables_with(instance, "walnuts").keys()
    verified = json.loads(instance.refold("verify", "--json").stdout)
    assert verified["equal"] and len(verified["projections"]) == len(PROJECTIONS)

    assert instance.http.get("/v1/tasks/of-own").status_code == 404
    replayed = instance.http.get(f"/v1/context/{context}")
    assert replayed.status_code == 409 and "erased" in replayed.text
    late = instance.publish(instance.event("own", "message.added", {"role": "user", "content": WORD}, task="of-own"))
    assert (late.status_code, late.json()["code"]) == (422, "erased")
    assert tables_with(instance, WORD) == {}
    assert instance.refold("erase", "--user", "u1", "--yes", "--id", "e1").returncode == 0, "asked for again"
    assert [one["id"] for one in instance.http.get("/v1/erasures").json()["items"]] == ["e1"]


@soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.2, 0.5, 1.0])
def test_an_instance_that_is_killed_sees_an_erasure_through(tmp_path: Path, after_s: float) -> None:
    """The command and every process die at some moment; the next start completes it."""
    with running_instance(tmp_path / "data") as first:
        live(first, "own", WORD, user="u1", agent="clerk", session="s1")
        until(lambda: settled(first))
        asked = first.http.post("/v1/erasures", json={"level": "user", "subject": "u1", "id": "e1"})
        assert asked.status_code == 202
        time.sleep(after_s)
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
    with running_instance(tmp_path / "data") as second:
        until(lambda: second.http.get("/v1/erasures/e1").json()["state"] == "done")
        until(lambda: settled(second))
        assert tables_with(second, WORD) == {}
        assert second.refold("verify").returncode == 0
