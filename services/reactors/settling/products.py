"""What a settlement is made of, and what of a model's answer is accepted as one.

Four products: the session state, candidates for memory, reflections (of the run, never memory) and learnings. A
candidate has no scope and names nobody: whose memory it may become follows from the run, never from an answer.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec

from events.errors import RefoldError
from events.types.base import NonEmpty, Seconds, Unit
from events.types.memory import MemoryKind, MemoryType
from events.types.settlement import SessionState

MAX_ANSWER_CHARS = 200_000
MAX_ITEMS = 64
"""Candidates, reflections or learnings in one settlement."""

_FENCE = re.compile(r"```(?:json|JSON)?[ \t]*\n(.*?)\n?[ \t]*```", re.DOTALL)
_QUOTED_CHARS = 80


class InvalidAnswer(RefoldError):
    """A model's answer is no settlement."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that may be worth remembering; the curator decides."""

    content: NonEmpty
    kind: MemoryKind = "fact"
    memory_type: MemoryType = "semantic"
    entity: str = ""
    attribute: str = ""
    confidence: Unit = 0.5
    tags: list[str] = []
    ttl_s: Seconds | None = None


class Learning(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What to do, or not to do, next time."""

    content: NonEmpty
    confidence: Unit = 0.5


class Products(msgspec.Struct, frozen=True, kw_only=True):
    """The four products."""

    session_state: SessionState
    memories: Annotated[list[Candidate], msgspec.Meta(max_length=MAX_ITEMS)] = []
    reflections: Annotated[list[str], msgspec.Meta(max_length=MAX_ITEMS)] = []
    learnings: Annotated[list[Learning | str], msgspec.Meta(max_length=MAX_ITEMS)] = []

    def plain(self) -> dict[str, Any]:
        """The members as an event holds them."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


SCHEMA: dict[str, Any] = msgspec.json.schema(Products)


def read_answer(text: str, *, complete: bool = True) -> Products:
    """The products in an answer: the answer itself, else the one JSON object in it. Raises InvalidAnswer, saying why.

    ``complete`` is false where the model was cut off.
    """
    if not text.strip():
        raise InvalidAnswer("the answer is empty")
    if len(text) > MAX_ANSWER_CHARS:
        raise InvalidAnswer(f"the answer has {len(text)} characters, more than {MAX_ANSWER_CHARS}")
    try:
        products = msgspec.json.decode(_object_in(text), type=Products)
    except msgspec.ValidationError as error:
        raise InvalidAnswer(f"a field is wrong: {error}") from error
    except (msgspec.DecodeError, UnicodeError) as error:
        cut = "" if complete else "it was cut off at its longest; "
        raise InvalidAnswer(f"the answer is no JSON object: {cut}{error}; it begins {_quoted(text)}") from error
    if products.session_state == SessionState():
        raise InvalidAnswer("`session_state` says nothing: give at least `goal` and `current_phase`")
    return products


def _object_in(text: str) -> str:
    """The part of an answer that is a JSON object: its outer braces, else what stands in a fence; else all of it."""
    whole = text.strip()
    between = whole[whole.find("{") : whole.rfind("}") + 1]
    return next((part for part in (between, *_FENCE.findall(whole)) if _is_object(part)), whole)


def _is_object(text: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.DecodeError, UnicodeError):
        return False


def _quoted(text: str) -> str:
    line = " ".join(text.split())
    return repr(line if len(line) <= _QUOTED_CHARS else line[:_QUOTED_CHARS] + "…")
