"""Processes of the backend that are forked from one which has imported everything.

They are processes like any others, with an environment, a folder, streams and an end of their own; but they begin
without the second or two that a thousand imports take, and tests start hundreds of them. ``python -m tests.warm FD`` is
the process that forks, one for each test process, which orders from it by way of ``WarmProcess``.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

ROOT = Path(__file__).parents[1]
PROGRAMS = ("services.cli.main", "services.worker")
"""What can be started: modules with a ``main``, which find their arguments in ``sys.argv``."""

_POLL_S = 0.005


class WarmProcess:
    """``python -m program *arguments`` for one of PROGRAMS; what it has of ``Popen`` means the same.

    ``stdout`` is the end to read from where none was given.
    """

    def __init__(
        self,
        program: str,
        *arguments: str,
        environ: Mapping[str, str],
        cwd: Path = ROOT,
        stdin: IO[bytes] | None = None,
        stdout: IO[bytes] | None = None,
        stderr: IO[bytes],
    ) -> None:
        assert program in PROGRAMS
        self.stdout: IO[bytes] | None = None
        self.returncode: int | None = None
        order = {"start": [program, *arguments], "environ": dict(environ), "cwd": str(cwd)}
        with ExitStack() as stack:
            stdin = stdin or stack.enter_context(Path(os.devnull).open("rb"))
            if stdout is None:
                self.stdout, stdout = (os.fdopen(end, mode) for end, mode in zip(os.pipe(), ("rb", "wb"), strict=True))
                stack.enter_context(stdout)
            self.pid: int = _forker().ask(order, [stdin.fileno(), stdout.fileno(), stderr.fileno()])

    def poll(self) -> int | None:
        """Its exit code, negative for a signal, once it has ended."""
        if self.returncode is None:
            self.returncode = _forker().ask({"ended": self.pid})
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Until it ends; its exit code. Raises ``subprocess.TimeoutExpired``."""
        began = time.monotonic()
        while (code := self.poll()) is None:
            if timeout is not None and time.monotonic() > began + timeout:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(_POLL_S)
        return code

    def send_signal(self, signum: int) -> None:
        """Unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, signum)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


def run(
    program: str, *arguments: str, stdin: bytes, timeout_s: float, **where: Any
) -> subprocess.CompletedProcess[bytes]:
    """As ``subprocess.run`` with captured output. Raises ``subprocess.TimeoutExpired``."""
    with TemporaryFile() as given, TemporaryFile() as out, TemporaryFile() as err:
        given.write(stdin)
        given.seek(0)
        process = WarmProcess(program, *arguments, stdin=given, stdout=out, stderr=err, **where)
        try:
            code = process.wait(timeout_s)
        finally:
            process.kill()
        wrote = []
        for stream in (out, err):
            stream.seek(0)
            wrote.append(stream.read())
    return subprocess.CompletedProcess((program, *arguments), code, *wrote)


class _Forker:
    """The other end of the process that forks; it and all that it began end with this process."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair()
        self._one_at_a_time = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.warm", str(theirs.fileno())],
                cwd=ROOT, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
            )  # fmt: skip
        atexit.register(self._end)

    def ask(self, order: dict[str, Any], streams: Sequence[int] = ()) -> Any:
        """Send an order, with open files for a process to begin; the answer."""
        with self._one_at_a_time:
            line = json.dumps(order).encode() + b"\n"
            sent = socket.send_fds(self._control, [line], streams)
            self._control.sendall(line[sent:])
            answer = b""
            while not answer.endswith(b"\n"):
                answer += self._control.recv(4096) or b"!\n"
            return json.loads(answer)

    def _end(self) -> None:
        self._control.close()
        self._process.wait()


@cache
def _forker() -> _Forker:
    return _Forker()


# ---- the process that forks


def _serve(control: socket.socket) -> None:
    """Take orders until there are no more; then what was begun ends, too."""
    begun: dict[int | None, BaseProcess] = {}
    while (received := _order(control)) is not None:
        order, streams = received
        if "ended" in order:
            answer = begun[order["ended"]].exitcode
        else:
            process = get_context("fork").Process(target=_become, args=(control, order, streams))
            process.start()
            answer = process.pid
            begun[answer] = process
        for each in streams:
            os.close(each)
        control.sendall(json.dumps(answer).encode() + b"\n")
    for process in begun.values():
        process.kill()


def _order(control: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    line, streams, _, _ = socket.recv_fds(control, 1 << 16, 3)
    while line and not line.endswith(b"\n"):
        line += control.recv(1 << 16)
    return (json.loads(line), streams) if line else None


def _become(control: socket.socket, order: dict[str, Any], streams: Sequence[int]) -> None:
    """Take on the streams, environment, folder and arguments of an order, and run its program."""
    control.close()
    for own, given in enumerate(streams):
        os.dup2(given, own)
        os.close(given)
    sys.stdin = os.fdopen(0)
    os.environ.clear()
    os.environ.update(order["environ"])
    os.chdir(order["cwd"])
    sys.path[:0] = [order["cwd"], *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    program, *arguments = order["start"]
    module = sys.modules["__main__"] = sys.modules[program]
    sys.argv = [str(module.__file__), *arguments]
    module.main()


def _main() -> None:
    """The command line."""
    for name in (*PROGRAMS, "services.up"):
        import_module(name)
    gc.collect()
    gc.freeze()  # what is here is shared by all
    with socket.socket(fileno=int(sys.argv[1])) as control:
        _serve(control)


if __name__ == "__main__":
    _main()
