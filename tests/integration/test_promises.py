"""Settings that weaken a promise: which are put right, and which ``refold doctor`` names."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest
import redis
from sqlalchemy import text

from events.database import Stores
from services.cli.doctor_promises import look_at_promises, weak_postgres, weak_redis
from services.settings import Settings
from tests.servers import PostgresServer, redis_server

ROOT = Path(__file__).resolve().parents[2]


def test_doctor_names_what_redis_may_lose(tmp_path: Path) -> None:
    server = redis_server(tmp_path / "redis")
    settings = Settings(data=tmp_path / "data", redis_url=server.url)
    try:
        assert look_at_promises(settings).state == "ok"
        with redis.Redis.from_url(server.url) as client:
            for value, what in (("everysec", "the last second"), ("no", "half a minute|half minute")):
                client.config_set("appendfsync", value)
                found = look_at_promises(settings)
                assert found.state == "warning"
                assert re.search(f"appendfsync {value}.*({what})", found.found)
                assert "docs/promises.md" in found.advice
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("config", "replicas", "named"),
    [
        ({"appendonly": "no", "appendfsync": "always"}, 0, "appendonly no"),
        ({"appendonly": "yes", "appendfsync": "always", "no-appendfsync-on-rewrite": "yes"}, 0, "on-rewrite"),
        ({"appendonly": "yes", "appendfsync": "always", "min-replicas-to-write": "0"}, 2, "min-replicas-to-write 0"),
        ({"appendonly": "yes", "appendfsync": "always", "min-replicas-to-write": "1"}, 2, ""),
        ({"appendonly": "yes", "appendfsync": "always", "min-replicas-to-write": "0"}, 0, ""),
        ({}, 0, ""),
    ],
)
def test_what_weakens_redis(config: dict[str, str], replicas: int, named: str) -> None:
    found = " ".join(weak_redis(config, replicas))
    assert named in found
    assert bool(found) == bool(named)


def test_what_weakens_postgresql() -> None:
    sound = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}
    assert list(weak_postgres(sound)) == []
    for name in sound:
        (found,) = weak_postgres({**sound, name: "off"})
        assert f"{name} off" in found


def test_doctor_asks_postgresql(postgres: PostgresServer, tmp_path: Path) -> None:
    """The servers of the tests are set so."""
    found = look_at_promises(Settings(data=tmp_path, database_url=postgres.url))
    assert (found.state, "fsync off" in found.found) == ("warning", True)


@pytest.mark.parametrize(("setting", "in_force"), [("off", "on"), ("local", "local"), ("remote_apply", "remote_apply")])
def test_commits_wait_for_the_disk_whatever_the_default(postgres: PostgresServer, setting: str, in_force: str) -> None:
    """A server set to synchronous_commit off would answer before an event is safe; what is stronger is left alone."""
    url = postgres.new_database()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'ALTER DATABASE "{url.rpartition("/")[2]}" SET synchronous_commit = {setting}')
    for db in (Stores(url).log(), Stores(url).generation("toy__g1")):
        try:
            for _ in range(3):
                assert db.write_now(lambda conn: conn.execute(text("SHOW synchronous_commit")).scalar()) == in_force
        finally:
            db.close()


def test_every_test_that_the_page_names_is_there() -> None:
    page = (ROOT / "docs" / "promises.md").read_text()
    named = set(re.findall(r"`(test_\w+)`", page))
    assert len(named) >= 12
    assert {name for name in named if not list((ROOT / "tests").rglob(f"{name}.py"))} == set()
