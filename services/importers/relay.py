"""Relay trajectories: ``{id, task, status, agents, chapters: [{events}], retrospective}``, with real times.

=============================  ============================================================
source                         events
=============================  ============================================================
task, agents, startedAt        ``run.started`` (goal; the agent settles its own run)
chapter                        ``note.written`` (category ``chapter``)
``decision``                   ``decision.made``
``completion-evidence``,       ``step.completed`` (the evidence is its result)
``completion-marker``
``finding`` of a step          ``step.completed``, unless evidence said so before
``error`` of a step            ``step.failed``
``note`` of a step             ``step.started``, ``step.skipped``
other notes, findings, errors  ``note.written`` with the source's type as its category
filesChanged, commits          ``artifact.created``
retrospective                  ``settlement.recorded`` by the agent
status, completedAt            ``run.terminated``
=============================  ============================================================

Run ids repeat with different content in the wild, so a run's id ends with its content digest. Trace files (line
attributions) and compacted files (digests of other runs) hold no run of their own and are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from services.importers.run import Imported, RunWriter, Skipped, run_id
from services.importers.source import decode, digest, moment, number, parse

FORMAT = "relay"
_STEP = re.compile(
    r'"(?P<step>[^"]+)"(?:(?P<skipped> skipped)|(?P<failed> failed)|(?P<done> completed)|(?P<retry> retrying)|:)'
    r"\s*(?:[—→:-]\s*)?(?P<rest>.*)",
    re.DOTALL,
)
_TERMINATED = {"completed", "abandoned", "failed", "cancelled"}


def runs(name: str, raw: bytes, agent: str = "") -> Iterator[Imported]:
    """The run of a file. ``name`` is the file's name without its ending; ``agent`` overrides every agent's name."""
    document = parse(decode(raw))
    if isinstance(document, dict) and isinstance(document.get("chapters"), list):
        yield _Run(name, document, agent).read()
    elif isinstance(document, dict) and document.get("type") == "compacted":
        yield Skipped(name, "a compacted digest of other runs, not a run")
    elif isinstance(document, dict) and "trajectory" in document and "files" in document:
        yield Skipped(name, "a trace of changed lines, not a run")
    else:
        yield Skipped(name, "it has no `chapters`")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _texts(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str) and item] if isinstance(value, list) else []


class _Run:
    """One document on its way to events; what is remembered of them is what its retrospective sums up."""

    def __init__(self, name: str, document: dict[str, Any], agent: str) -> None:
        self.document = document
        self.agent = agent
        lead = next((_text(one.get("name")) for one in _dicts(document.get("agents"))), "")
        identity = run_id(_text(document.get("id")) or name, digest(agent, document))
        self.writer = RunWriter(FORMAT, identity, agent or lead or "default")
        self.notes = 0
        self.completed: dict[str, str] = {}
        self.decisions: list[str] = []
        self.errors: list[str] = []
        self.phase = ""

    def read(self) -> Imported:
        doc, writer = self.document, self.writer
        task = doc.get("task")
        title = task if isinstance(task, str) else _text(_dict(task).get("title"))
        goal = "\n\n".join(part for part in (title, _text(_dict(task).get("description"))) if part)
        retrospective = _dict(doc.get("retrospective"))
        writer.at(moment(doc.get("startedAt")))
        writer.add("run.started", {"goal": goal, "settles": "agent" if retrospective else "backend"})
        for chapter in _dicts(doc.get("chapters")):
            self._chapter(chapter)
        writer.at(moment(doc.get("completedAt")))
        for kind, names in (("file", doc.get("filesChanged")), ("commit", doc.get("commits"))):
            for name in _texts(names):
                writer.add("artifact.created", {"name": name, "kind": kind})
        status = _text(doc.get("status"))
        reason = "end_turn" if status == "completed" else "error_streak" if self.errors else "interrupt"
        if retrospective:
            self._settlement(retrospective, goal, reason)
        if status in _TERMINATED:
            detail = self.errors[-1] if self.errors and reason != "end_turn" else status
            outcome = "completed" if reason == "end_turn" else None
            writer.add("run.terminated", {"reason": reason, "outcome": outcome, "detail": detail})
        return writer.done()

    def _chapter(self, chapter: Mapping[str, Any]) -> None:
        agent = "" if self.agent else _text(chapter.get("agentName"))
        self.phase = _text(chapter.get("title"))
        self.writer.at(moment(chapter.get("startedAt")))
        if self.phase:
            self._note("chapter", self.phase, agent)
        handlers: dict[str, Callable[[Mapping[str, Any], str], None]] = {
            "decision": self._decision,
            "completion-evidence": self._evidence,
            "completion-marker": self._evidence,
            "finding": self._of_step,
            "error": self._of_step,
            "note": self._of_step,
        }
        for event in _dicts(chapter.get("events")):
            self.writer.at(moment(event.get("ts")))
            handlers.get(_text(event.get("type")), self._other)(event, agent)

    def _decision(self, event: Mapping[str, Any], agent: str) -> None:
        raw = _dict(event.get("raw"))
        chosen = _text(raw.get("chosen")) or _text(event.get("content"))
        if not chosen:
            return
        self.decisions.append(chosen)
        alternatives = raw.get("alternatives")
        data = {
            "question": _text(raw.get("question")),
            "chosen": chosen,
            "alternatives": alternatives if isinstance(alternatives, list) else [],
            "rationale": _text(raw.get("reasoning")),
            "significance": _text(event.get("significance")),
        }
        self.writer.add("decision.made", data, agent=agent)

    def _evidence(self, event: Mapping[str, Any], agent: str) -> None:
        raw = _dict(event.get("raw"))
        step = _text(raw.get("stepName"))
        if not step:
            self._other(event, agent)
            return
        self.completed[step] = _text(raw.get("reason"))
        data = {"step": step, "summary": self.completed[step], "result": raw.get("evidence")}
        self.writer.add("step.completed", data, agent=agent)

    def _of_step(self, event: Mapping[str, Any], agent: str) -> None:
        """A note, finding or error whose text names a step: what it says of the step; else a note."""
        kind, content = _text(event.get("type")), _text(event.get("content"))
        if kind == "error":
            self.errors.append(content)
        match = _STEP.match(content)
        if match is None or match["retry"]:
            self._other(event, agent)
            return
        step, rest = match["step"], match["rest"].strip()
        if kind == "error" and match["failed"]:
            error = _text(_dict(event.get("raw")).get("rawError")) or rest
            self.writer.add("step.failed", {"step": step, "error": error, "detail": content}, agent=agent)
        elif kind == "note" and match["skipped"]:
            self.writer.add("step.skipped", {"step": step, "reason": rest}, agent=agent)
        elif kind == "note" and not (match["failed"] or match["done"]):
            self.writer.add("step.started", {"step": step, "title": rest}, agent=agent)
        elif kind == "finding" and match["done"] and step not in self.completed:
            self.completed[step] = rest
            self.writer.add("step.completed", {"step": step, "summary": rest}, agent=agent)
        else:
            self._other(event, agent)

    def _other(self, event: Mapping[str, Any], agent: str) -> None:
        raw = _dict(event.get("raw"))
        content = _text(event.get("content"))
        self._note(_text(event.get("type")) or "note", {"text": content, **raw} if raw else content, agent)

    def _note(self, category: str, content: Any, agent: str) -> None:
        self.notes += 1
        data = {"key": f"{category}-{self.notes}", "category": category, "content": content or category}
        self.writer.add("note.written", data, agent=agent)

    def _settlement(self, retrospective: Mapping[str, Any], goal: str, reason: str) -> None:
        """The agent's own retrospective, completed from what its run recorded."""
        state = {
            "pending_task": "" if reason == "end_turn" else goal,
            "goal": goal,
            "current_phase": self.phase,
            "completed_actions": [{"path": step, "summary": summary} for step, summary in self.completed.items()],
            "key_decisions": self.decisions,
            "open_questions": _texts(retrospective.get("challenges")),
        }
        data = {
            "by": "agent",
            "reason": reason,
            "interrupted": reason != "end_turn",
            "session_state": state,
            "reflections": [text for key in ("summary", "approach") if (text := _text(retrospective.get(key)))],
            "learnings": _texts(retrospective.get("learnings")),
            "confidence": number(retrospective.get("confidence")),
        }
        # keyed by the session, not by the task: the run's numbering does not reach there
        self.writer.add("settlement.recorded", data, counted=False)
