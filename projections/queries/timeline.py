"""The timeline of a task: what each of its events told, in a line, and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, Table, select, tuple_

from events.archive import queries
from events.archive.erasing import ERASED
from events.archive.reader import Archived
from events.errors import Poison
from events.event import Event, Position
from events.registry import decode_payload
from projections.bounds import canonical, clip
from projections.engine.repair import DISCARDED, discard_of
from projections.engine.tables import dead_letters
from projections.projection import Projection
from projections.queries.rows import Document
from projections.task.tables import LATE_EVENTS, NOTE_CONFLICTS

LINE_CHARS = 160
_HEAD_CHARS = 1_000
_SECTIONS = ("observations", "preconditions", "requirements", "to_retry")


def effects(conn: Connection, org: str, key: str, positions: Iterable[Position]) -> dict[Position, str]:
    """What became of those of a task's events that were not simply applied, as far as the read model tells.

    ``late``, ``note_conflict``, or the cause of a dead letter (``poison``, ``waiting``, ...).
    """
    wanted = sorted(positions)
    if not wanted:
        return {}
    found = dict.fromkeys(_between(conn, NOTE_CONFLICTS, org, key, wanted), "note_conflict")
    found |= dict.fromkeys(_between(conn, LATE_EVENTS, org, key, wanted), "late")
    place = tuple_(dead_letters.c.epoch, dead_letters.c.n)
    of_key = (dead_letters.c.org == org, dead_letters.c.key == key)
    query = select(dead_letters.c.epoch, dead_letters.c.n, dead_letters.c.cause).where(
        *of_key, place >= tuple_(*wanted[0]), place <= tuple_(*wanted[-1])
    )
    return found | {Position(epoch, n): cause for epoch, n, cause in conn.execute(query)}


def _between(conn: Connection, table: Table, org: str, key: str, wanted: list[Position]) -> list[Position]:
    place = tuple_(table.c.epoch, table.c.n)
    query = select(table.c.epoch, table.c.n).where(
        table.c.org == org, table.c.key == key, place >= tuple_(*wanted[0]), place <= tuple_(*wanted[-1])
    )
    return [Position(epoch, n) for epoch, n in conn.execute(query)]


def discarded_ids(conn: Connection, projection: Projection, org: str, key: str) -> set[str]:
    """Ids of the events of a key that later ones discard for this projection."""
    found = (discard_of(projection, archived) for archived in queries.read_key_type(conn, org, key, DISCARDED))
    return {one[1] for one in found if one is not None}


def entry(archived: Archived, projection: Projection, discarded: Collection[str], effect: str | None) -> Document:
    """One event in the timeline of its task. ``effect`` as ``effects`` has it.

    ``effect`` in the answer is ``applied`` for all but those, ``none`` for types that change no task state (dialogue,
    unknown ones), ``duplicate_of`` and ``conflict_with`` for what repeats an id, ``erased_by`` for what was
    erased, ``discarded`` for what was left out.
    """
    event = archived.event()
    if archived.verdict != "effective":
        effect = archived.verdict
    elif event.id in discarded:
        effect = "discarded"
    elif event.type not in projection.handles:
        effect = "none"
    first = archived.first
    return {
        "position": str(archived.position),
        "time": event.time,
        "type": event.type,
        "run": event.run,
        "id": event.id,
        "what": "erased" if archived.verdict == ERASED else line_of(event),
        "effect": effect or "applied",
        **({} if first is None else {"first": str(first)}),
    }


def line_of(event: Event) -> str:
    """What an event tells, in one line of at most LINE_CHARS characters."""
    try:
        payload = decode_payload(event)
    except Poison as error:
        return _line("cannot be read:", str(error))
    if payload is None:
        return _line("of a type that this version does not know")
    told = _TELL.get(event.type)
    return _line(event.data) if told is None else _line(*told(payload))


def _line(*parts: Any) -> str:
    words = " ".join(" ".join(_text(part) for part in parts if part not in ("", None)).split())
    return clip(words, LINE_CHARS)


def _text(value: Any) -> str:
    # cut before it is laid out: only the head of a line is shown
    return (value if isinstance(value, str) else canonical(value))[:_HEAD_CHARS]


def _step(verb: str, *more: str) -> Callable[[Any], tuple[Any, ...]]:
    def tell(payload: Any) -> tuple[Any, ...]:
        details = [str(value) for name in more if (value := getattr(payload, name))]
        return (f"step {payload.step} {verb}{':' if details else ''}", *details)

    return tell


def _verdict(words: str) -> Callable[[Any], tuple[Any, ...]]:
    return lambda payload: (f"card {payload.card} {words}{':' if payload.reason else ''}", payload.reason)


_TELL: Mapping[str, Callable[[Any], tuple[Any, ...]]] = {
    "run.started": lambda p: (f"attempt {p.attempt} starts", f"({p.model})" if p.model else "", p.goal),
    "run.heartbeat": lambda p: ("is alive", p.detail),
    "run.terminated": lambda p: (f"ends: {p.reason}", f"({p.outcome})" if p.outcome else "", p.detail),
    "plan.updated": lambda p: (f"plan of {len(p.steps)} steps:", ", ".join(step.id for step in p.steps[:20])),
    "step.started": _step("starts", "title"),
    "step.completed": _step("is completed", "summary"),
    "step.failed": _step("fails", "error"),
    "step.skipped": _step("is skipped", "reason"),
    "tool.called": lambda p: (f"calls {p.name} as {p.call_id}", p.arguments),
    "tool.returned": lambda p: (f"{p.call_id} returns", p.result),
    "tool.failed": lambda p: (f"{p.call_id} fails", p.error),
    "message.added": lambda p: (f"{p.role} says", p.content),
    "decision.made": lambda p: (f"decides: {p.chosen}", f"({p.question})" if p.question else ""),
    "note.written": lambda p: (f"notes {p.key}:", p.content),
    "model.responded": lambda p: (f"{p.tokens_in} + {p.tokens_out} tokens, {p.cost:g} {p.currency}", p.model),
    "workbench.updated": lambda p: ("workbench:", ", ".join(of for of in _SECTIONS if getattr(p, of) is not None)),
    "card.invalidated": _verdict("does not hold"),
    "card.restored": _verdict("holds again"),
    "artifact.created": lambda p: (f"makes {p.name}", p.uri),
    "blocker.raised": lambda p: (f"is blocked by {p.blocker}", p.description),
    "blocker.cleared": lambda p: (f"{p.blocker} is cleared", p.detail),
    "approval.requested": lambda p: (f"asks for approval {p.approval}", p.action),
    "approval.resolved": lambda p: (
        f"approval {p.approval} is {'given' if p.approved else 'refused'}",
        f"by {p.by}" if p.by else "",
        p.detail,
    ),
    "checkpoint.saved": lambda p: (
        f"saves {'milestone' if p.milestone else 'checkpoint'}", p.checkpoint,
        f"(version {p.data_version})" if p.data_version else "",
    ),
    "feedback.given": lambda p: (f"{p.by or 'somebody'} says", p.text, f"({p.score:g})" if p.score is not None else ""),
    "deadletter.discarded": lambda p: (f"{p.event_id} is left out of {p.projection}", p.reason),
}  # fmt: skip
"""What each type tells, from its payload."""
