"""What Refold itself records."""

from __future__ import annotations

from typing import Literal

from events.types.base import Count, JsonValue, Level, NonEmpty, Payload, Unit

Erasable = Literal["user", "agent", "org", "task", "session", "run"]
"""What can be erased: a scope of a level, or what stands under a task, a session or a run."""


class ContextAssembled(Payload, frozen=True, kw_only=True):
    """A context was handed out; enough to make it again, not its text.

    ``positions``: read model and key -> how far it was read. ``expected`` ([tool, field, chance that the next call
    takes a value of it], learned of ``calls``) and ``parameters`` are what was known of an agent's tools (``learned``
    in records of earlier versions), ``recalled`` ([card, task]) what the query brought from other
    tasks: they came from beyond the task's own events. ``brought`` are memories that the query brought, ``memories``
    all that it tells, each as [memory, scope].
    ``policy`` ([scope, belief]): the rules that hold there, the first ones told first.
    """

    context: NonEmpty
    now: str
    positions: dict[str, str] = {}
    chosen: list[str] = []
    left_out: list[JsonValue] = []
    query: str = ""
    tokens: Count = 0
    digest: str = ""
    request: dict[str, JsonValue] = {}
    learned: list[tuple[str, str, int, int]] = []
    expected: list[tuple[str, str, Unit]] = []
    calls: Count = 0
    parameters: list[str] = []
    recalled: list[tuple[str, str]] = []
    policy: list[tuple[str, str]] = []
    brought: list[tuple[str, str]] = []
    memories: list[tuple[str, str]] = []


class PackImported(Payload, frozen=True, kw_only=True):
    """A memory pack was imported into a scope, known by the digest of its contents.

    Several events tell of one import. The last says that it is done: ``counts`` is what was in the pack by sort of
    item, ``done`` what became of each sort, ``refused`` which items did not enter and why, ``confidence`` what
    confidences were multiplied with, ``origin`` where the pack came from. The others hold its ``notes`` and
    ``settlements`` as documents.
    """

    pack: NonEmpty
    digest: str = ""
    counts: dict[str, Count] = {}
    done: dict[str, dict[str, Count]] = {}
    refused: list[JsonValue] = []
    confidence: Unit | None = None
    origin: dict[str, JsonValue] = {}
    notes: list[JsonValue] = []
    settlements: list[JsonValue] = []
    scope: Level | None = None


class DeadletterDiscarded(Payload, frozen=True, kw_only=True):
    """An event that no fold could take is left out on purpose, by a person, in every rebuild too.

    It is recorded under the partition key of the event it discards.
    """

    projection: NonEmpty
    event_id: NonEmpty
    partition_key: NonEmpty
    reason: str = ""
    by: str = ""


class ScopeErased(Payload, frozen=True, kw_only=True):
    """Everything of a subject is erased; the event goes to every partition, with derived ids.

    ``erasure`` names what the events of all partitions belong to. No publisher may send it: ``refold erase`` does.
    """

    level: Erasable
    subject: NonEmpty
    partition: Count
    by: str = ""
    erasure: str = ""
