"""A worker that is told which read models to fold: those, and no other."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.instance import REFOLD, ROOT, Instance, environment, running_instance, until

LEASE_S = "2"
JOINED_S = 90.0


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running_instance(tmp_path_factory.mktemp("worker") / "data", REFOLD_LEASE_S=LEASE_S) as instance:
        yield instance


@contextmanager
def worker(instance: Instance, projections: str) -> Iterator[subprocess.Popen[bytes]]:
    """One more process that folds these; ended by SIGTERM."""
    process = subprocess.Popen(
        [*REFOLD, "worker", "--role", "projector", "--projections", projections, "--data", str(instance.data)],
        cwd=ROOT, env=environment(REFOLD_LEASE_S=LEASE_S),
    )  # fmt: skip
    try:
        yield process
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


def owners(instance: Instance) -> dict[str, int]:
    """How many processes fold each read model."""
    items = instance.http.get("/v1/projections", params={"detail": True}).json()["items"]
    return {one["name"]: len({each["worker"] for each in one["partitions"]} - {None}) for one in items}


def test_a_worker_folds_what_it_is_told_beside_others_while_events_flow(instance: Instance) -> None:
    """It takes its share of these read models, is asked for no other, and what it held goes on when it leaves."""

    def run(number: int) -> str:
        run, data = f"r{number}", {"key": "n", "content": number}
        return instance.stored(instance.event(run, "run.started", {}), instance.event(run, "note.written", data))

    def seen(number: int, token: str) -> bool:
        state = instance.http.get(f"/v1/tasks/r{number}", params={"after": token}).json()
        return [note["content"] for note in state["notes"]] == [number]

    alone = dict.fromkeys(owners(instance), 1)
    assert set(alone) > {"task_state", "beliefs"}
    with worker(instance, "task_state, beliefs"):
        until(lambda: owners(instance) == alone | {"task_state": 2, "beliefs": 2}, JOINED_S)
        assert all(seen(number, run(number)) for number in range(24))
    until(lambda: owners(instance) == alone, JOINED_S)
    assert seen(24, run(24))
    assert instance.refold("verify").returncode == 0


def test_an_unknown_name_is_told_with_the_known_ones(instance: Instance) -> None:
    done = instance.refold("worker", "--role", "projector", "--projections", "task_state,task_sate")
    assert done.returncode != 0
    assert b"'task_sate'" in done.stderr and b"task_state" in done.stderr and b"Traceback" not in done.stderr
