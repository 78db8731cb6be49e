"""The form of a memory pack: a zip of a manifest and JSON lines, as text, without vectors.

    manifest.json       version, whose it is, the day that confidences were computed for, what made it, and of each file
                        how many items and bytes it has and its SHA-256; last its own digest
    memories.jsonl      active memories
    beliefs.jsonl       beliefs that stand, each with its confidence and its evidence as documents
    notes.jsonl         notes that the scope's runs wrote into their tasks
    settlements.jsonl   what the scope's runs left at their end

Files are stored as they are, sorted, with a fixed time: the same state makes the same bytes on any machine. A pack is
known by the digest of its contents (``Pack.digest``), whichever version made it, and however the zip is compressed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import msgspec
import orjson

from events.errors import Refused
from events.keys import members_of
from events.times import check_time
from events.types.base import Level, NonEmpty, Seconds, Unit
from events.types.memory import MemoryKind, MemorySource, MemoryType, Trust

VERSION = 1
"""Of the form; a pack of a later version is refused."""

MAX_PACK_BYTES = 64 << 20
"""Of the zip."""
MAX_ITEMS = 100_000
"""Of all files together."""
MAX_NAME = 256
"""Characters of a user's or an agent's name, as the door has it."""

MANIFEST = "manifest.json"
MEMORIES, BELIEFS, NOTES, SETTLEMENTS = "memories.jsonl", "beliefs.jsonl", "notes.jsonl", "settlements.jsonl"
FILES = (BELIEFS, MEMORIES, NOTES, SETTLEMENTS)
"""What stands beside the manifest, in the order of the zip."""

_TIMES = ("created", "last_verified", "written_at", "time")
_SOME_TIME = "1970-01-01T00:00:00Z"


class Item(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a file. Members that this version does not know are passed over; times are RFC 3339."""

    def __post_init__(self) -> None:
        for name in _TIMES:
            try:
                check_time(getattr(self, name, "") or _SOME_TIME)
            except Refused as error:
                raise ValueError(f"`{name}`: {error}") from error


class MemoryItem(Item, frozen=True, kw_only=True):
    """An active memory; ``ttl_s`` counts from ``last_verified``."""

    memory: NonEmpty
    kind: MemoryKind
    content: NonEmpty
    memory_type: MemoryType = "semantic"
    entity: str = ""
    attribute: str = ""
    confidence: Unit | None = None
    tags: list[str] = []
    ttl_s: Seconds | None = None
    source: MemorySource = "agent"
    trust: Trust = "stated"
    created: str = ""
    last_verified: str = ""


class BeliefItem(Item, frozen=True, kw_only=True):
    """A belief: its words, its confidence on the manifest's day, and what speaks for and against it."""

    belief: NonEmpty
    kind: str
    statement: str = ""
    trigger: dict[str, Any] = {}
    tendency: str = ""
    limits: dict[str, Any] = {}
    confidence: Unit = 0.5
    supports: int = 0
    against: int = 0
    last_verified: str = ""
    evidence: list[dict[str, Any]] = []


class NoteItem(Item, frozen=True, kw_only=True):
    """A note of a task."""

    task: NonEmpty
    note: NonEmpty
    content: Any = None
    version: int = 1
    category: str = ""
    ttl_s: Seconds | None = None
    written_at: str = ""
    source: str = ""
    run: str = ""


class SettlementItem(Item, frozen=True, kw_only=True):
    """What a run left at its end: its notes, or the evidence of its events."""

    run: NonEmpty
    task: str = ""
    session: str = ""
    reason: str = ""
    degraded: bool = False
    session_state: dict[str, Any] | None = None
    reflections: list[Any] | None = None
    learnings: list[Any] | None = None
    evidence: list[Any] | None = None
    time: str = ""


class Scope(msgspec.Struct, frozen=True):
    """Whose a pack is: a level, and the name of a user or an agent (the organisation has none)."""

    level: Level
    name: str = ""

    @classmethod
    def of(cls, key: str) -> Scope:
        """The scope of a key: ``user/u1``, ``agent/coder``, ``org``."""
        level, _, name = key.partition("/")
        return msgspec.convert({"level": level, "name": name}, cls)

    @property
    def key(self) -> str:
        """As it stands in a log."""
        return f"{self.level}/{self.name}" if self.name else self.level

    @property
    def names(self) -> dict[str, str]:
        """The members of an event that put it into this scope."""
        return members_of(self.key)


class FileNote(msgspec.Struct, frozen=True):
    """What the manifest says of a file."""

    items: int
    bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The first file of a pack. ``source`` names the generation of each read model that it was made from."""

    refold_pack: int
    scope: Scope
    as_of: str
    created_by: str
    source: dict[str, str]
    files: dict[str, FileNote]
    digest: str = ""

    def digested(self) -> Manifest:
        """The manifest with its own digest, by which damage to it is known."""
        plain = msgspec.structs.replace(self, digest="")
        return msgspec.structs.replace(self, digest=sha256(plain.text()).hexdigest())

    def text(self) -> bytes:
        """Its bytes, the same for the same values."""
        return orjson.dumps(msgspec.to_builtins(self), option=orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2) + b"\n"


@dataclass(frozen=True)
class Pack:
    """A pack in memory: whose it is, where it comes from, and the items of each file in their order."""

    scope: Scope
    as_of: str
    created_by: str = ""
    source: Mapping[str, str] = field(default_factory=dict)
    memories: tuple[MemoryItem, ...] = ()
    beliefs: tuple[BeliefItem, ...] = ()
    notes: tuple[NoteItem, ...] = ()
    settlements: tuple[SettlementItem, ...] = ()

    def items(self, file: str) -> tuple[Item, ...]:
        """The items of a file."""
        found: tuple[Item, ...] = getattr(self, file.removesuffix(".jsonl"))
        return found

    def texts(self) -> dict[str, bytes]:
        """The bytes of each file."""
        return {file: b"".join(map(line_of, self.items(file))) for file in FILES}

    @property
    def counts(self) -> dict[str, int]:
        """How many items of each sort."""
        return {file.removesuffix(".jsonl"): len(self.items(file)) for file in FILES}

    @property
    def digest(self) -> str:
        """SHA-256 of what is in it, in hexadecimal."""
        return sha256(b"".join(sha256(text).digest() for text in self.texts().values())).hexdigest()


def line_of(item: Item) -> bytes:
    """An item as it stands in its file. Raises TypeError for one that JSON cannot hold."""
    return orjson.dumps(msgspec.to_builtins(item), option=orjson.OPT_SORT_KEYS) + b"\n"
