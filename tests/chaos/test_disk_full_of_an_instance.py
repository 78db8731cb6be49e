"""The disk of ``refold up`` is full: publishers are told to come again; when there is room it goes on by itself."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.instance import Instance, running_instance, until

DISK, LEFT = 48 << 20, 6 << 20
BATCH = 20
TEXT = "x" * 8_000


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of a few MiB."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("no right to mount a small file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_disk_full_of_an_instance(tmp_path: Path) -> None:
    """Invariants 1 and 8: Redis, archive and read models share the disk; nothing acknowledged is lost or doubled."""
    settings = {"REFOLD_PUBLISH_TIMEOUT_S": "3", "REFOLD_WORKERS": "0"}
    with small_disk(tmp_path / "disk") as disk, running_instance(disk / "data", **settings) as up:
        ballast = disk / "ballast"
        ballast.write_bytes(b"x" * (shutil.disk_usage(disk).free - LEFT))
        acknowledged, refused, answer = _fill(up)
        assert answer.status_code == 503, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        assert int(answer.headers["retry-after"]) > 0
        print(answer.json()["detail"])
        assert up.http.get("/healthz").status_code == 200
        ballast.unlink()
        for events in (refused, _batch(up), _batch(up)):
            until(lambda events=events: _stored(up, events), 90)
            acknowledged += [event["id"] for event in events]
        _check(up, acknowledged)


def _fill(up: Instance) -> tuple[list[str], list[dict[str, Any]], httpx.Response]:
    """Publish until the answer is no longer yes; what was acknowledged, what was not, and the answer."""
    acknowledged: list[str] = []
    while True:
        events = _batch(up)
        answer = up.publish(*events)
        if answer.status_code != 200:
            return acknowledged, events, answer
        assert {outcome["status"] for outcome in answer.json()["outcomes"]} == {"stored"}
        acknowledged += [event["id"] for event in events]


def _batch(up: Instance) -> list[dict[str, Any]]:
    return [up.event(up.name(), data={"role": "user", "content": TEXT}) for _ in range(BATCH)]


def _stored(up: Instance, events: list[dict[str, Any]]) -> bool:
    answer = up.publish(*events)
    if answer.status_code != 200:
        assert answer.status_code == 503, answer.text
        return False
    return {outcome["status"] for outcome in answer.json()["outcomes"]} <= {"stored", "duplicate"}


def _check(up: Instance, acknowledged: list[str]) -> None:
    def caught_up() -> bool:
        status = json.loads(up.refold("status", "--json").stdout)
        return all(each["lag_events"] == 0 and each["state"] == "live" for each in status["projections"])

    until(caught_up, 90)
    archived = json.loads(up.refold("status", "--json").stdout)["events"]
    assert archived == len(acknowledged) == len(set(acknowledged))
    verified = up.refold("verify", "--json")
    assert verified.returncode == 0, verified.stdout
    assert json.loads(verified.stdout)["equal"]
