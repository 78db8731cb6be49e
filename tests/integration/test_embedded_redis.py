"""The embedded Redis: found, started, stopped, taken over from the dead; each failure in one clear message."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from events.errors import SetupError
from services.embedded import redis_server
from services.embedded.redis_server import RedisServer, find_server, provide_redis, start_redis
from tests.servers import free_port


@pytest.fixture
def started(tmp_path: Path) -> Iterator[RedisServer]:
    server = start_redis(tmp_path / "redis")
    yield server
    server.stop()


def settings(server: RedisServer, *names: str) -> list[str]:
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        return [str(client.config_get(name)[name]) for name in names]


def write(url: str, key: str) -> None:
    with redis.Redis.from_url(url) as client:
        client.set(key, "1")


def keys(url: str) -> list[bytes]:
    with redis.Redis.from_url(url) as client:
        return sorted(client.keys())


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        stat = Path(f"/proc/{pid}/stat")
        if not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.02)
    return False


def test_it_syncs_before_it_answers_and_listens_on_loopback_alone(started: RedisServer) -> None:
    assert settings(started, "appendonly", "appendfsync", "save", "bind") == ["yes", "always", "", "127.0.0.1"]


def test_stopped_and_started_again_it_has_everything(started: RedisServer, tmp_path: Path) -> None:
    write(started.url, "a")
    started.stop()
    assert not started.alive()
    started.stop()
    again = start_redis(tmp_path / "redis", port=started.port)
    try:
        assert again.url == started.url
        assert keys(again.url) == [b"a"]
    finally:
        again.stop()


def test_kill_9_loses_no_answered_write(started: RedisServer, tmp_path: Path) -> None:
    """Invariant 1."""
    for i in range(100):
        write(started.url, f"k{i:02d}")
    assert started.process is not None
    started.process.kill()
    started.process.wait()
    again = start_redis(tmp_path / "redis")
    try:
        assert len(keys(again.url)) == 100
    finally:
        again.stop()


def test_a_given_url_is_used_and_never_stopped(started: RedisServer, tmp_path: Path) -> None:
    given = provide_redis(tmp_path / "other", url=started.url)
    assert given.url == started.url
    given.stop()
    assert given.alive()
    assert started.alive()
    assert not (tmp_path / "other").exists()


def test_a_wrong_url_is_told_without_its_password(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"no Redis answers at redis://.*correct or unset REDIS_URL") as caught:
        provide_redis(tmp_path, url=f"redis://me:hunter2@127.0.0.1:{free_port()}/0")
    assert "hunter2" not in str(caught.value)


def test_a_refused_password_is_told(started: RedisServer, tmp_path: Path) -> None:
    with redis.Redis.from_url(started.url) as client:
        client.config_set("requirepass", "secret")
    with pytest.raises(SetupError, match="refuses the password"):
        provide_redis(tmp_path, url=started.url)


def test_a_redis_that_evicts_is_refused(started: RedisServer, tmp_path: Path) -> None:
    """It would forget parts of the log without a sign."""
    with redis.Redis.from_url(started.url) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
    with pytest.raises(SetupError, match=r"may drop keys \(allkeys-lru\).*noeviction"):
        provide_redis(tmp_path, url=started.url)


def test_a_taken_port_is_named(started: RedisServer, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=f"port {started.port} is taken"):
        start_redis(tmp_path / "second", port=started.port)
    assert started.alive()


def test_an_unwritable_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match=r"cannot write .*file/redis.*REFOLD_DATA"):
        start_redis(tmp_path / "file" / "redis")


def test_a_damaged_file_is_named(started: RedisServer, tmp_path: Path) -> None:
    write(started.url, "a")
    started.stop()
    (log,) = (tmp_path / "redis" / "appendonlydir").glob("*.incr.aof")
    log.write_bytes(b"*nonsense\r\n" + log.read_bytes())
    with pytest.raises(SetupError, match="damaged: repair it with valkey-check-aof"):
        start_redis(tmp_path / "redis")


def test_a_torn_end_of_the_file_is_no_damage(started: RedisServer, tmp_path: Path) -> None:
    """What a power cut leaves: the last, unanswered write is half there."""
    write(started.url, "a")
    started.stop()
    (log,) = (tmp_path / "redis" / "appendonlydir").glob("*.incr.aof")
    log.write_bytes(log.read_bytes() + b"*3\r\n$3\r\nSET\r\n$1\r\nb")
    again = start_redis(tmp_path / "redis")
    try:
        assert keys(again.url) == [b"a"]
    finally:
        again.stop()


@pytest.mark.parametrize(
    ("says", "message"),
    [
        ("Can't open the append-only file: No space left on device", "the disk of .* is full"),
        ("Can't open or create append-only dir: Permission denied", "cannot be written"),
        ("Something new", "Something new"),
    ],
)
def test_what_a_server_says_when_it_ends_is_told(tmp_path: Path, says: str, message: str) -> None:
    """A program in the server's place, since a test should fill no disk."""
    program = tmp_path / "server"
    program.write_text('#!/bin/sh\necho "' + says + '"\nexit 1\n')
    program.chmod(0o755)
    with pytest.raises(SetupError, match=message):
        start_redis(tmp_path / "redis", binary=program)


def test_a_full_disk_while_running_is_told(started: RedisServer) -> None:
    assert started.folder is not None
    with (started.folder / "redis.log").open("a") as log:
        log.write("# Error writing to the AOF file: No space left on device\n")
    assert "is full: free some space" in started.why_it_ended()


def server_on_path(folder: Path, name: str, version: str) -> None:
    program = folder / name
    program.write_text(f'#!/bin/sh\necho "{version}"\n')
    program.chmod(0o755)


def test_a_server_on_path_comes_first_if_it_is_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert shutil.which("redis-server") is None
    wheels = find_server()
    server_on_path(tmp_path, "redis-server", "Redis server v=6.2.14 sha=0:0 malloc=jemalloc")
    assert find_server() == wheels
    server_on_path(tmp_path, "valkey-server", "Valkey server v=8.0.1 sha=0:0 malloc=jemalloc")
    assert find_server() == tmp_path / "valkey-server"
    server_on_path(tmp_path, "redis-server", "Redis server v=7.0.15 sha=0:0 malloc=jemalloc")
    assert find_server() == tmp_path / "redis-server"


def test_no_server_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(redis_server, "_wheels_server", lambda: None)
    with pytest.raises(SetupError, match=r"install redis-server or valkey-server .* or set REDIS_URL"):
        find_server()


ORPHAN = """
import os, sys
from pathlib import Path
from services.embedded.redis_server import start_redis
server = start_redis(Path(sys.argv[1]))
print(server.process.pid, server.url, flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def orphan(tmp_path: Path) -> Iterator[tuple[int, str]]:
    """Pid and URL of a server whose parent was killed."""
    root = Path(redis_server.__file__).parents[2]
    parent = subprocess.run(
        [sys.executable, "-c", ORPHAN, str(tmp_path / "redis")], capture_output=True, text=True, cwd=root, check=False
    )
    assert parent.returncode == -signal.SIGKILL, parent.stderr
    pid, url = parent.stdout.split()
    yield int(pid), url
    if not gone(int(pid)):
        os.kill(int(pid), signal.SIGKILL)


@pytest.mark.parametrize("state", ["answering", "stopped"])
def test_the_server_of_a_killed_parent_is_ended_first(tmp_path: Path, orphan: tuple[int, str], state: str) -> None:
    """Two servers on one append-only file would ruin it; one that hangs is found by its folder."""
    pid, url = orphan
    write(url, "a")
    if state == "stopped":
        os.kill(pid, signal.SIGSTOP)
    server = start_redis(tmp_path / "redis")
    try:
        assert gone(pid)
        assert keys(server.url) == [b"a"]
    finally:
        server.stop()


def test_a_stale_pid_of_somebody_else_is_left_alone(tmp_path: Path, started: RedisServer) -> None:
    """The files name a process and a port that others have by now."""
    other = tmp_path / "second"
    other.mkdir()
    (other / "redis.pid").write_text(str(os.getpid()))
    (other / "redis.port").write_text(str(started.port))
    server = start_redis(other)
    server.stop()
    assert started.alive()
