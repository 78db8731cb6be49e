"""The resume document: what a new process needs to go on with a task."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from refold.errors import Unavailable

logger = logging.getLogger("refold")


@dataclass(frozen=True)
class Call:
    """A tool call of an earlier attempt. In flight: it may or may not have taken effect."""

    call_id: str
    name: str
    run: str = ""
    arguments: Any = None
    step: str = ""
    idempotency_key: str = ""
    side_effect: bool = False


@dataclass(frozen=True)
class Resume:
    """What earlier attempts at a task left.

    ``results`` holds the finished steps, which must not be repeated, in the plan's order, with what each gave;
    ``cursor`` is the first planned step that is not done; ``checkpoint`` the data of the last ``checkpoint.saved``.
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
    checkpoint: Any = None
    raw: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, task: str, document: Mapping[str, Any]) -> Resume:
        """The document of ``GET /v1/tasks/{task}/resume``. Raises Unavailable when it is older than was asked for."""
        note = document.get("read") or {}
        if not note.get("reached", True):
            raise Unavailable(f"what is known of task {task!r} is still being read from the log: try again shortly")
        if note.get("incomplete"):
            logger.warning("an event of task %r could not be folded: what is known of it is incomplete", task)
        return cls(
            task=task,
            status=str(document.get("status") or ""),
            goal=str(document.get("goal") or ""),
            attempt=int(document.get("attempt") or 0),
            run=str(document.get("run") or ""),
            plan=tuple(document.get("plan") or ()),
            cursor=str(document.get("cursor") or ""),
            results={step["step"]: step.get("result") for step in document.get("finished_steps") or ()},
            in_flight=tuple(_call(raw) for raw in document.get("in_flight") or ()),
            checkpoint=(document.get("checkpoint") or {}).get("data"),
            raw=document,
        )

    @property
    def finished_steps(self) -> tuple[str, ...]:
        """The steps that are done and must not be repeated."""
        return tuple(self.results)

    def in_flight_call(self, key: str) -> Call | None:
        """The call with this idempotency key that an earlier attempt began and whose end nobody knows."""
        return next((call for call in self.in_flight if call.idempotency_key == key), None)


def resume_path(task: str) -> str:
    """Where the document of a task is; its name is one segment, whatever it contains."""
    # `.` and `..` as they are would be taken for steps on the path
    segment = quote(task, safe="") if task.strip(".") else task.replace(".", "%2E")
    return f"/v1/tasks/{segment}/resume"


def _call(raw: Mapping[str, Any]) -> Call:
    return Call(
        call_id=str(raw.get("call_id") or ""),
        name=str(raw.get("name") or ""),
        run=str(raw.get("run") or ""),
        arguments=raw.get("arguments"),
        step=str(raw.get("step") or ""),
        idempotency_key=str(raw.get("idempotency_key") or ""),
        side_effect=bool(raw.get("side_effect")),
    )
