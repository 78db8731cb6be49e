"""The same runs in logs of 1, 3 and 8 partitions make equal tables of beliefs."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import orjson

from events.event import Position, Recorded
from events.keys import partition_of
from events.registry import decode_payload
from events.types.belief import LAST_WORD
from projections.beliefs import BELIEFS_PROJECTION
from tests.instance import Instance, running_instance, until
from tests.integration.reactor_lab import run_events
from tests.soak import soak
from tests.unit.fold_runner import Folded, event, record

RUNS = 40
SAID = {0: "Just the conclusion, please", 4: "Show me every step", 8: "Skip the reasoning, only the result"}
"""What one user says in three runs, who comes back to what was wished for first."""


def lived() -> list[dict[str, Any]]:
    """Experiences and what people said, of three agents and four users, some runs judged again."""
    dice, raws = Random(3), []
    for n in range(RUNS):
        agent, user, day = f"a{n % 3}", f"u{n % 4}", 1 + n % 28
        label = dice.choice(["success", "deviated_success", "recoverable_failure", "fatal_failure"])
        counts = [
            {"tool": tool, "label": label, "count": dice.randrange(1, 4)} for tool in ("search", "book")[: 1 + n % 2]
        ]
        data = {"run": f"r{n}", "deriver_version": 1, "counts": counts, "path": "search > book", "path_label": label}
        fatal = [{"tool": "book", "pattern": "declined~00aa11bb", "context": f"c{n % 5}"}] if "fatal" in label else []
        when: dict[str, Any] = {"time": f"2026-02-{day:02}T10:00:{n:02}Z", "agent": agent}
        for revision in range(1, 2 + n % 2):
            more = {"revision": revision, "scope": "agent", "fatal": fatal}
            raws.append(event("experience.recorded", id=f"e{n}-{revision}", data={**data, **more}, **when))
        whole = {**data, "scope": "user", "sheet": {"cause": label}}
        raws.append(event("experience.recorded", id=f"w{n}", user=user, data=whole, **when))
        said = {"user": user, "session": f"s{n}", "time": when["time"]}
        raws.append(event("feedback.given", id=f"f{n}", data={"text": "Only the conclusion", "by": user}, **said))
        verified = {"belief": f"b{n % 3}", "supports": n % 3 > 0, "source": f"s{n % 7}"}
        raws.append(event("belief.verified", id=f"v{n}", data=verified, **said))
    return raws


def test_rows_do_not_depend_on_the_partitions_of_the_log() -> None:
    """Each partition is folded by itself, in an order of its own."""
    dumps = set()
    for partitions in (1, 3, 8):
        logs: dict[int, list[Recorded]] = {}
        for one in record(lived()):
            logs.setdefault(partition_of(one.event.org, one.event.key, partitions), []).append(one)
        folded = Folded(BELIEFS_PROJECTION)
        for partition, log in logs.items():
            Random(partitions * 100 + partition).shuffle(log)
            at = [
                Recorded(partition, Position(1, n), one.event, decode_payload(one.event)) for n, one in enumerate(log)
            ]
            folded.fold(at, batch=7)
        dumps.add(folded.dump())
    assert len(dumps) == 1
    assert len(folded.table("evidence")) > RUNS


@soak
def test_the_same_runs_imported_into_logs_of_other_partitions(tmp_path: Path) -> None:
    """Real instances: runs go in, hindsight looks back on them, and every one of them has the same rows."""
    found = []
    for partitions in (1, 3, 8):
        with running_instance(tmp_path / str(partitions), REFOLD_PARTITIONS=str(partitions)) as instance:
            found.append((learned(instance), erased(instance)))
    before, after = found[0]
    assert len(before["evidence"]) > len(after["evidence"]) > 0
    assert found[0] == found[1] == found[2]


def learned(instance: Instance) -> dict[str, Any]:
    """Publish the runs, and the rows of beliefs once all are looked back on; they verify, too."""
    raws = []
    for n in range(RUNS):
        names = {"user": f"u{n % 4}", "agent": f"a{n % 3}", "time": f"2026-02-{1 + n % 28:02}T10:00:00Z"}
        for one in run_events(f"r{n}", "end_turn" if n % 3 else "error_streak"):
            of_run = {"run": one.run, "task": one.task, "session": one.session}
            raws.append({"id": one.id, "type": one.type, "data": orjson.loads(one.data), **of_run, **names})
            if one.type == "run.started" and n in SAID:
                said = {"id": f"said-{n}", "type": "message.added", "data": {"role": "user", "content": SAID[n]}}
                raws.append({**said, **of_run, **names})
    answer = instance.http.post("/v1/events", json=raws).json()
    assert {one["status"] for one in answer["outcomes"]} == {"stored"}

    whose = [{"agent": f"a{n}"} for n in range(3)] + [{"user": f"u{n}"} for n in range(4)]

    def all_derived() -> bool:
        pages = [instance.http.get("/v1/experiences", params={**one, "limit": 1000}).json() for one in whose]
        return sum(len(page["items"]) for page in pages) == 2 * RUNS and not lag(instance)

    def all_promoted() -> bool:
        return evidence_of_rules(instance) == promoted and not lag(instance)

    promoted = [("plan_pattern", len(range(0, RUNS, 3))), ("user_preference", 2), ("user_preference", 3)]
    until(all_derived)
    until(all_promoted)
    assert instance.refold("verify", "beliefs").returncode == 0
    return rows_of(instance)


def evidence_of_rules(instance: Instance) -> list[tuple[str, int]]:
    rows = rows_of(instance)["beliefs"]
    return sorted((row["kind"], row["evidence"]) for row in rows if row["belief"].startswith("rule/"))


def erased(instance: Instance) -> dict[str, Any]:
    """Erase a user, and the rows of beliefs once nothing counts that came of that user's runs; they verify, too."""
    gone = {f"r{n}" for n in range(RUNS) if n % 4 == 1}
    asked = instance.http.post("/v1/erasures", json={"level": "user", "subject": "u1"})
    assert asked.status_code == 202, asked.text

    def forgotten() -> bool:
        counted = {one["source"].removeprefix("run/") for one in rows_of(instance)["evidence"] if one["counts"]}
        return not gone & counted and not lag(instance)

    until(forgotten)
    until(lambda: all(one["sheet"] == {} for one in rows_of(instance)["experiences"] if one["key"] == "user/u1"))
    assert instance.refold("verify", "beliefs").returncode == 0
    found = rows_of(instance)
    for one in found["experiences"]:
        if one["deriver_version"] == LAST_WORD:
            del one["event_id"], one["time"]  # an erasure has other ids in each partition, and this moment
    for one in found["evidence"]:
        if not one["counts"]:
            del one["event_id"], one["time"]
    for one in found["beliefs"]:
        one["latest"] = [entry for entry in one["latest"] if entry[1].removeprefix("run/") not in gone]
    return found


def lag(instance: Instance) -> int:
    found = instance.http.get("/v1/projections").json()["items"]
    return sum(one["lag_events"] for one in found if one["name"] == "beliefs")


def rows_of(instance: Instance) -> dict[str, Any]:
    path = "/v1/projections/beliefs/tables"
    names = [one["table"] for one in instance.http.get(path).json()["items"]]
    return {name: instance.http.get(f"{path}/{name}", params={"limit": 1000}).json()["items"] for name in names}
