"""The one place to add a format, and the walk over files that are to be imported."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from events.errors import Refused, SetupError
from services.importers import chat, relay, swe_agent
from services.importers.run import Imported, Skipped


@dataclass(frozen=True)
class Format:
    """A format: the endings of its files, and the pure function (name, bytes, agent) -> runs."""

    name: str
    suffixes: tuple[str, ...]
    read: Callable[[str, bytes, str], Iterator[Imported]]


FORMATS = {
    format.name: format
    for format in (
        Format(chat.FORMAT, (".jsonl", ".ndjson", ".json"), chat.runs),
        Format(swe_agent.FORMAT, (".traj.json", ".traj", ".json"), swe_agent.runs),
        Format(relay.FORMAT, (".json",), relay.runs),
    )
}


def files(path: Path, format: Format) -> list[Path]:
    """The files to read: the path itself, or the matching files below it in a stable order.

    Raises SetupError when there is none.
    """
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise SetupError(f"{path} does not exist: give a file or a folder")
    found = sorted(file for file in path.rglob("*") if file.is_file() and file.name.endswith(format.suffixes))
    if not found:
        raise SetupError(f"{path} holds no {' or '.join(format.suffixes)} file: is it another folder or format?")
    return found


def read_file(file: Path, format: Format, agent: str = "") -> Iterator[Imported]:
    """Every run of one file. A file that cannot be read is skipped with the reason."""
    name = file.name
    suffix = next((suffix for suffix in format.suffixes if name.endswith(suffix)), "")
    try:
        yield from format.read(name.removesuffix(suffix), file.read_bytes(), agent)
    except Refused as refusal:
        yield Skipped(name, str(refusal))
    except OSError as error:
        yield Skipped(name, error.strerror or str(error))
