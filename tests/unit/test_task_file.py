"""The file of an exported task: whole, or refused with what is wrong and where."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import orjson
import pytest

from services.api import exports
from services.cli import task_file
from services.cli.errors import USAGE, CliError
from services.cli.task_file import TaskFile


def line(**members: Any) -> bytes:
    return orjson.dumps(members) + b"\n"


def whole(version: int = 1) -> list[bytes]:
    """A file of three events, as an export writes it."""
    head = line(refold_export="task", version=version, task="t1")
    events = [line(id=f"e{n}", type="step.started", task="t1", run=f"r{n % 2}", data={"step": "s"}) for n in range(3)]
    digest = blake2b(b"".join([head, *events]), digest_size=16).hexdigest()
    return [head, *events, line(refold_end="task", events=3, digest=digest)]


def of(folder: Path, lines: list[bytes]) -> Path:
    path = folder / "task.jsonl"
    path.write_bytes(b"".join(lines))
    return path


def test_a_whole_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    lines = whole()
    read = TaskFile.check(of(tmp_path, lines))
    assert (read.task, read.ids, read.events) == ("t1", frozenset(("e0", "e1", "e2")), 3)
    assert list(read.lines()) == [(number, text.strip()) for number, text in enumerate(lines[1:-1], 2)]


def test_writer_and_reader_agree_on_the_form() -> None:
    assert exports.VERSION == task_file.VERSION


def damages() -> Iterator[tuple[str, list[bytes]]]:
    """What is said of a file, and the file."""
    good = whole()
    yield "was cut off", good[:-1]
    yield "goes on after its end, in line 6", [*good, good[1]]
    yield "not those that were exported", [*good[:2], *good[3:]]
    yield "not those that were exported", [good[0], good[2], good[1], *good[3:]]
    yield "not those that were exported", [good[0], good[1].replace(b'"s"', b'"x"'), *good[2:]]
    yield "damaged in line 3", [*good[:2], good[2][:20] + b"\n", *good[3:]]
    yield "no JSON object", [*good[:2], b"7\n", *good[3:]]
    yield "is of version 2, this Refold reads version 1", whole(version=2)
    yield "an event of task 'other' in the file of 't1'", [good[0], good[1].replace(b'"t1"', b'"other"'), *good[2:]]
    yield "no exported task", good[1:]
    yield "no exported task", []
    yield "no exported task", [line(task="t1")]


@pytest.mark.parametrize(("said", "lines"), list(damages()))
def test_a_file_that_is_not_whole_is_refused(said: str, lines: list[bytes], tmp_path: Path) -> None:
    with pytest.raises(CliError, match=said) as caught:
        TaskFile.check(of(tmp_path, lines))
    assert caught.value.exit_code == USAGE


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(CliError, match=r"cannot read .*nowhere\.jsonl: No such file"):
        TaskFile.check(tmp_path / "nowhere.jsonl")
