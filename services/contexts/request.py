"""What a context is asked for, and its id."""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

import msgspec

from events.errors import Refused
from projections.context.assembly import DEFAULT_TOKENS, PARTS
from projections.context.shapes import MODES

MAX_TOKENS = 2_000_000
MAX_QUERY = 100_000
"""Longest query, in characters."""
MAX_ORIGINALS = 50
_LONGEST_ID = 128
_SEPARATOR = "@"


@dataclass(frozen=True, kw_only=True)
class ContextRequest:
    """A context of a task. ``parts`` are names of ``PARTS``; ``mode`` one of ``MODES``, empty for that of the run.

    ``focus``: words of what is to be decided. ``originals``: cards, by id or by the position that a context shows,
    whose originals are wanted whole.
    """

    task: str
    query: str = ""
    max_tokens: int = DEFAULT_TOKENS
    parts: tuple[str, ...] = PARTS
    mode: str = ""
    focus: str = ""
    originals: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.task or "\0" in self.task:
            raise _refused("task", "name a task")
        if not 1 <= self.max_tokens <= MAX_TOKENS:
            raise _refused("max_tokens", f"1 to {MAX_TOKENS:,} tokens")
        if unknown := [name for name in self.parts if name not in PARTS]:
            raise _refused("parts", f"there is no part {unknown[0]!r:.60}; there are {', '.join(PARTS)}")
        if self.mode and self.mode not in MODES:
            raise _refused("mode", f"there is no mode {self.mode!r:.60}; there are {', '.join(MODES)}")
        if len(self.query) + len(self.focus) > MAX_QUERY:
            raise _refused("query", f"query and focus have at most {MAX_QUERY:,} characters together")
        if len(self.originals) > MAX_ORIGINALS:
            raise _refused("originals", f"at most {MAX_ORIGINALS} at once")

    def document(self) -> dict[str, Any]:
        """As JSON, to be recorded."""
        return asdict(self)

    @classmethod
    def of_document(cls, document: dict[str, Any]) -> ContextRequest:
        """From what was recorded. Raises msgspec.ValidationError, Refused."""
        return msgspec.convert(document, cls)


def new_id(task: str, unix_ms: int) -> str:
    """An id in the order of time that names its task, where that is short enough for one."""
    noise = secrets.randbits(74)
    value = (unix_ms & (1 << 48) - 1) << 80 | 7 << 76 | (noise >> 62) << 64 | 2 << 62 | noise & (1 << 62) - 1
    plain = str(UUID(int=value))
    named = f"{plain}{_SEPARATOR}{task}"
    return named if len(named) <= _LONGEST_ID else plain


def task_of(context: str) -> str:
    """The task that a context's id names; empty when it names none."""
    return context.partition(_SEPARATOR)[2]


def _refused(field: str, message: str) -> Refused:
    return Refused(f"`{field}`: {message}", code="bad_parameter", field=field)
