"""The file of one exported task: a first line that tells what it is, the events, a last line that tells it is whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from services.cli.errors import USAGE, CliError

VERSION = 1
"""Of the file's form; a file of a later version is refused."""

_OURS = ("settlement.", "experience.", "belief.", "memory.", "card.", "context.", "deadletter.", "run.terminated")


def from_outside(type: str) -> bool:
    """Whether events of a type come from agents and people alone: no backend adds such a one by itself."""
    return not type.startswith(_OURS)


@dataclass(frozen=True)
class TaskFile:
    """A file that was read through once and found whole."""

    path: Path
    task: str
    ids: frozenset[str]
    """Of those events that came from outside."""
    events: int

    @classmethod
    def check(cls, path: Path) -> TaskFile:
        """Read a file through. Raises CliError for one that is damaged, of another kind, version or task."""
        try:
            with path.open("rb") as file:
                return cls._check(path, file)
        except OSError as error:
            raise CliError(f"cannot read {path}: {error.strerror}", USAGE) from error

    @classmethod
    def _check(cls, path: Path, file: Any) -> TaskFile:
        first = file.readline()
        task, ids = str(_head(path, first)["task"]), set[str]()
        seen = blake2b(first, digest_size=16)
        last: dict[str, Any] = {}
        count = 0
        for number, line in enumerate(file, 2):
            if last:
                raise CliError(f"{path} goes on after its end, in line {number}: it is damaged", USAGE)
            member = _object(path, line, number)
            if "refold_end" in member:
                last = member
                continue
            if member.get("task", member.get("run")) != task:
                named = member.get("task", member.get("run"))
                raise CliError(f"{path}, line {number}: an event of task {named!r} in the file of {task!r}", USAGE)
            seen.update(line)
            if from_outside(str(member.get("type", ""))):
                ids.add(str(member.get("id", "")))
            count += 1
        if not last:
            raise CliError(f"{path} ends after {count:,} events without its last line: it was cut off", USAGE)
        if (last.get("events"), last.get("digest")) != (count, seen.hexdigest()):
            raise CliError(f"{path} is damaged: its {count:,} events are not those that were exported", USAGE)
        return cls(path, task, frozenset(ids), count)

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """The events in the order in which they are to be published, each with the number of its line."""
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if 1 < number <= self.events + 1:
                    yield number, line.strip()


def _head(path: Path, line: bytes) -> dict[str, Any]:
    head = _object(path, line, 1) if line.strip() else {}
    if head.get("refold_export") != "task" or not isinstance(head.get("task"), str):
        raise CliError(f"{path} is no exported task: `refold task export ID > FILE` makes one", USAGE)
    if head.get("version") != VERSION:
        found = head.get("version")
        raise CliError(f"{path} is of version {found}, this Refold reads version {VERSION}: upgrade it first", USAGE)
    return head


def _object(path: Path, line: bytes, number: int) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise CliError(f"{path} is damaged in line {number}: {error}", USAGE) from error
    if not isinstance(value, dict):
        raise CliError(f"{path} is damaged in line {number}: it is no JSON object", USAGE)
    return value
