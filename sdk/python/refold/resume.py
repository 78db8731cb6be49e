"""The resume document: what a new process needs to go on with a task."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar
from urllib.parse import quote

import orjson

from refold.errors import NewerCheckpoint, NoteConflict, Unavailable

logger = logging.getLogger("refold")

PartT = TypeVar("PartT")


@dataclass(frozen=True)
class Call:
    """A tool call of an earlier attempt. In flight: it may or may not have taken effect, and has no result."""

    call_id: str = ""
    name: str = ""
    run: str = ""
    arguments: Any = None
    step: str = ""
    idempotency_key: str = ""
    side_effect: bool = False
    result: Any = None


@dataclass(frozen=True)
class Note:
    """A note of the task. ``stale``: it has outlived its time; ``verify_again``: look again before relying on it."""

    note: str = ""
    content: Any = None
    category: str = ""
    version: int = 0
    source: str = ""
    run: str = ""
    written_at: str = ""
    fresh_until: str = ""
    stale: bool = False
    verify_again: bool = False


@dataclass(frozen=True)
class Change:
    """Something of the configuration (model, system_prompt, tools, plan) that is not what it was, by digest."""

    what: str = ""
    before: str | None = None
    after: str | None = None


@dataclass(frozen=True)
class Approval:
    """What a person was asked. ``changed``, while it is pending: what it was asked under and holds no more."""

    approval: str = ""
    action: str = ""
    arguments: Any = None
    pending: bool = False
    approved: bool | None = None
    by: str = ""
    detail: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    changed: tuple[Change, ...] = ()


@dataclass(frozen=True)
class Child:
    """The task of a sub-agent: where it stands, and what it handed on."""

    task: str = ""
    run: str = ""
    parent_run: str = ""
    status: str = ""
    goal: str = ""
    detail: str = ""
    result: Any = None


@dataclass(frozen=True)
class Workbench:
    """What the work had at hand when it was cut off."""

    observations: tuple[Any, ...] = ()
    preconditions: tuple[Any, ...] = ()
    requirements: tuple[Any, ...] = ()
    to_retry: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Resume:
    """What earlier attempts at a task left.

    ``results`` holds the finished steps, which must not be repeated, in the plan's order, with what each gave;
    ``effects_done`` are side effects within steps that are not finished;
    ``cursor`` is the first planned step that is not done; ``checkpoint`` the data of the last ``checkpoint.saved``,
    ``checkpoint_version`` the version of its schema and ``checkpoint_schema`` how that compares with the one the
    caller said it knows (same, older, newer, other; "" when it said none). ``session_state`` and ``pinned_evidence``
    are what the session's settlements left; ``changed`` is what of the caller's configuration is not as it was.
    ``raw`` is the whole document as the backend answered it.
    """

    task: str
    status: str = ""
    goal: str = ""
    attempt: int = 0
    run: str = ""
    plan: tuple[Mapping[str, Any], ...] = ()
    cursor: str = ""
    results: Mapping[str, Any] = field(default_factory=dict)
    in_flight: tuple[Call, ...] = ()
    effects_done: tuple[Call, ...] = ()
    notes: tuple[Note, ...] = ()
    approvals: tuple[Approval, ...] = ()
    children: tuple[Child, ...] = ()
    workbench: Workbench = Workbench()
    checkpoint: Any = None
    checkpoint_version: str = ""
    checkpoint_schema: str = ""
    session_state: Mapping[str, Any] = field(default_factory=dict)
    pinned_evidence: tuple[Mapping[str, Any], ...] = ()
    system_prompt: Any = None
    changed: tuple[Change, ...] = ()
    raw: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, task: str, document: Mapping[str, Any]) -> Resume:
        """The document of ``GET /v1/tasks/{task}/resume``. Raises Unavailable when it is older than was asked for."""
        note = document.get("read") or {}
        if not note.get("reached", True):
            raise Unavailable(f"what is known of task {task!r} is still being read from the log: try again shortly")
        if note.get("incomplete"):
            logger.warning("an event of task %r could not be folded: what is known of it is incomplete", task)
        saved = document.get("checkpoint") or {}
        return cls(
            task=task,
            status=str(document.get("status") or ""),
            goal=str(document.get("goal") or ""),
            attempt=int(document.get("attempt") or 0),
            run=str(document.get("run") or ""),
            plan=tuple(document.get("plan") or ()),
            cursor=str(document.get("cursor") or ""),
            results={step["step"]: step.get("result") for step in document.get("finished_steps") or ()},
            in_flight=_parts(Call, document.get("in_flight")),
            effects_done=_parts(Call, document.get("effects_done")),
            notes=_parts(Note, document.get("notes")),
            approvals=tuple(_approval(raw) for raw in document.get("approvals") or ()),
            children=_parts(Child, document.get("children")),
            workbench=_workbench(document.get("workbench") or {}),
            checkpoint=saved.get("data"),
            checkpoint_version=str(saved.get("data_version") or ""),
            checkpoint_schema=str(saved.get("schema") or ""),
            session_state=(document.get("session_state") or {}).get("state") or {},
            pinned_evidence=tuple(document.get("pinned_evidence") or ()),
            system_prompt=(document.get("system_prompt") or {}).get("content"),
            changed=_parts(Change, (document.get("config") or {}).get("changed_since")),
            raw=document,
        )

    @property
    def finished_steps(self) -> tuple[str, ...]:
        """The steps that are done and must not be repeated."""
        return tuple(self.results)

    @property
    def pending_approvals(self) -> tuple[Approval, ...]:
        """What a person was asked and has not answered."""
        return tuple(approval for approval in self.approvals if approval.pending)

    def in_flight_call(self, key: str) -> Call | None:
        """The call with this idempotency key that an earlier attempt began and whose end nobody knows."""
        return next((call for call in self.in_flight if call.idempotency_key == key), None)

    def effect_done(self, key: str) -> Call | None:
        """The side effect with this idempotency key that an earlier attempt did, with what it gave."""
        return next((call for call in reversed(self.effects_done) if call.idempotency_key == key), None)

    def check_schema(self, knows: str) -> None:
        """Raise NewerCheckpoint when the checkpoint is of a newer schema than the caller, who named it, knows."""
        if self.checkpoint_schema == "newer":
            raise NewerCheckpoint(
                f"the checkpoint of task {self.task!r} is of version {self.checkpoint_version}, and this code knows "
                f"{knows}: go on with the code that saved it, or a later one",
                version=self.checkpoint_version,
            )


def check_note(document: Mapping[str, Any], event_id: str) -> None:
    """Raise NoteConflict when the document of a task tells that this writing of a note was one. Raises Unavailable
    when the document is older than the writing."""
    if not (document.get("read") or {}).get("reached", True):
        raise Unavailable("the note is written, and whether it was a conflict is not known yet: read the task again")
    lost = next((one for one in document.get("note_conflicts") or () if one.get("event_id") == event_id), None)
    if lost is not None:
        raise NoteConflict(
            f"note {lost['note']!r} is at version {lost['found_version']}, not {lost['expected_version']}: "
            "it was not overwritten; read it, and write it again with the version it has",
            note=str(lost["note"]),
            version=int(lost["found_version"]),
        )


def task_path(task: str) -> str:
    """Where the document of a task is; its name is one segment, whatever it contains."""
    # `.` and `..` as they are would be taken for steps on the path
    segment = quote(task, safe="") if task.strip(".") else task.replace(".", "%2E")
    return f"/v1/tasks/{segment}"


def resume_path(task: str) -> str:
    """Where the document to go on with a task is."""
    return f"{task_path(task)}/resume"


def resume_params(after: str, knows: str, config: Mapping[str, str | None] | None) -> dict[str, str]:
    """What is asked with it."""
    given = {"after": after, "knows": knows, "config": orjson.dumps(dict(config)).decode() if config else ""}
    return {name: text for name, text in given.items() if text}


def _part(kind: type[PartT], raw: Mapping[str, Any]) -> PartT:
    """One part of a document, by the names it has; those it does not have keep their defaults."""
    names = [one.name for one in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: raw[name] for name in names if raw.get(name) is not None})


def _parts(kind: type[PartT], raws: Iterable[Mapping[str, Any]] | None) -> tuple[PartT, ...]:
    return tuple(_part(kind, raw) for raw in raws or ())


def _approval(raw: Mapping[str, Any]) -> Approval:
    return _part(Approval, {**raw, "changed": _parts(Change, raw.get("changed"))})


def _workbench(raw: Mapping[str, Any]) -> Workbench:
    return Workbench(**{one.name: tuple(raw.get(one.name) or ()) for one in fields(Workbench)})
