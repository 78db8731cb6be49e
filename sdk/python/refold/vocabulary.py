"""What a run can say: one method an event type, written once for the sync and the async client.

``R`` is what a method gives back: None in ``Run``, an awaitable in ``AsyncRun``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar

from refold.envelope import Draft, Wait
from refold.ids import digest, uuid7
from refold.plain import fit, plain

R = TypeVar("R")

Reason = Literal[
    "end_turn", "interrupt", "cycle_detected", "error_streak", "budget_exhausted", "timeout", "panic_stop", "lost"
]
Outcome = Literal["completed", "blocked", "failed", "interrupted"]
Role = Literal["system", "developer", "user", "assistant", "tool"]


def filled(**members: Any) -> dict[str, Any]:
    """The members that say something, as plain JSON."""
    return {name: plain(value) for name, value in members.items() if value not in (None, "", [], {})}


def addressed(content: Any) -> dict[str, Any] | None:
    """Content by its address: digest and content; None for none."""
    return None if content is None else {"digest": digest(plain(content)), "content": plain(content)}


def plan_digest(steps: Iterable[Mapping[str, Any]]) -> str:
    """What tells one plan from another: its steps' ids and titles in their order, not how far they are."""
    return digest([[step["id"], step.get("title", "")] for step in steps])


def configured(*, model: str = "", system_prompt: Any = None, tools: Any = None) -> dict[str, str]:
    """What a run is configured with, by digest (the model by name), as the backend compares it; what is not given is
    left out."""
    parts = {"system_prompt": addressed(system_prompt), "tools": addressed(tools)}
    digests = {name: str(part["digest"]) for name, part in parts.items() if part}
    return {"model": model, **digests} if model else digests


def plan_steps(steps: Iterable[str | Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Steps as the plan's payload: a text is a step's id; a mapping has ``id``, perhaps ``title`` and ``status``."""
    return [{"id": step} if isinstance(step, str) else dict(plain(step)) for step in steps]


def note_draft(
    key: str, content: Any, category: str, ttl_s: float | None, expected_version: int | None = None
) -> Draft:
    """A note; one that must not overwrite what its writer has not seen is durable before anybody goes on."""
    data = {"key": key, "content": fit(content), **filled(category=category, ttl_s=ttl_s)}
    if expected_version is None:
        return Draft("note.written", data)
    return Draft("note.written", {**data, "expected_version": expected_version}, Wait.HARD, must_pass=True)


class Vocabulary(ABC, Generic[R]):
    """The words of a run that are one event each. Values may be any Python object (see ``refold.plain``)."""

    @abstractmethod
    def record_all(self, drafts: Sequence[Draft]) -> R:
        """Publish drafts under this run, in order. Raises Conflict once another worker has taken over the task."""

    def record(self, draft: Draft) -> R:
        """Publish one draft; see ``record_all``."""
        return self.record_all((draft,))

    def plan(self, steps: Iterable[str | Mapping[str, Any]], *, reason: str = "") -> R:
        """Replace the plan. A text is a step's id; a mapping has ``id`` and may have ``title`` and ``status``."""
        return self.record(Draft("plan.updated", {"steps": plan_steps(steps), **filled(reason=reason)}))

    def decide(
        self,
        chosen: str,
        *,
        question: str = "",
        alternatives: Iterable[Any] = (),
        rationale: str = "",
        based_on: Iterable[str] = (),
    ) -> R:
        """A choice, what else was possible, why, and the event or call ids that it rests on."""
        data = filled(
            chosen=chosen,
            question=question,
            alternatives=list(alternatives),
            rationale=rationale,
            based_on=list(based_on),
        )
        return self.record(Draft("decision.made", data))

    def message(self, role: Role, content: Any, *, name: str = "", call_id: str = "") -> R:
        """A turn of the conversation: text, or a list of content parts."""
        data = {"role": role, "content": fit(content), **filled(name=name, call_id=call_id)}
        return self.record(Draft("message.added", data))

    def note(self, key: str, content: Any, *, category: str = "", ttl_s: float | None = None) -> R:
        """A keyed note of the task; it takes the place of the former one."""
        return self.record(note_draft(key, content, category, ttl_s))

    def feedback(
        self,
        text: str = "",
        *,
        score: float | None = None,
        target_kind: Literal["run", "step", "call", "message", ""] = "",
        target: str = "",
        by: str = "",
    ) -> R:
        """Somebody judged the run or a part of it; a higher score is better."""
        data = filled(text=text, score=score, target_kind=target_kind, target=target, by=by)
        return self.record(Draft("feedback.given", data))

    def artifact(
        self,
        name: str,
        *,
        uri: str = "",
        kind: str = "",
        digest: str = "",
        size_bytes: int | None = None,
        step: str = "",
    ) -> R:
        """The run made or changed something that outlives it."""
        data = filled(name=name, uri=uri, kind=kind, digest=digest, size_bytes=size_bytes, step=step)
        return self.record(Draft("artifact.created", data))

    def block(self, blocker: str, description: str = "") -> R:
        """The task cannot go on until this blocker is cleared."""
        return self.record(Draft("blocker.raised", filled(blocker=blocker, description=description)))

    def unblock(self, blocker: str, detail: str = "") -> R:
        """A blocker is gone."""
        return self.record(Draft("blocker.cleared", filled(blocker=blocker, detail=detail)))

    def request_approval(
        self, approval: str, *, action: str = "", arguments: Any = None, versions: Mapping[str, str] | None = None
    ) -> R:
        """The task waits for a person's yes to ``action``; ``versions`` names what it is asked under, by digest."""
        data = filled(approval=approval, action=action, arguments=arguments, versions=dict(versions or {}))
        return self.record(Draft("approval.requested", data, Wait.SOFT))

    def resolve_approval(self, approval: str, *, approved: bool, by: str = "", detail: str = "") -> R:
        """A person answered."""
        data = {"approval": approval, "approved": approved, **filled(by=by, detail=detail)}
        return self.record(Draft("approval.resolved", data, Wait.SOFT))

    def workbench(
        self,
        *,
        observations: Iterable[Any] | None = None,
        preconditions: Iterable[Any] | None = None,
        requirements: Iterable[Any] | None = None,
        to_retry: Iterable[Any] | None = None,
        add: bool = False,
    ) -> R:
        """What the work has at hand: a section that is given takes the former one's place, or goes behind it (``add``).

        Short-lived and bounded (the latest 20 of each): gone when the task's work ends. What must outlast it is a note.
        """
        given = {
            "observations": observations, "preconditions": preconditions, "requirements": requirements,
            "to_retry": to_retry,
        }  # fmt: skip
        sections = {name: [fit(item) for item in items] for name, items in given.items() if items is not None}
        return self.record(Draft("workbench.updated", {**sections, "add": add}))

    def observe(self, *observations: Any) -> R:
        """What the work has just seen, on the workbench."""
        return self.workbench(observations=observations, add=True)

    def checkpoint(self, data: Any, *, data_version: str = "", checkpoint: str = "", milestone: bool = False) -> R:
        """Opaque state of the agent's own runtime; ``resume`` hands it back as it was. JSON values only."""
        members = filled(data_version=data_version, checkpoint=checkpoint or uuid7())
        return self.record(
            Draft("checkpoint.saved", {"data": plain(data), "milestone": milestone, **members}, Wait.SOFT)
        )

    def responded(
        self,
        model: str = "",
        *,
        tokens_in: int = 0,
        tokens_out: int = 0,
        cost: float = 0.0,
        currency: str = "USD",
        latency_ms: float | None = None,
    ) -> R:
        """A model answered, and what it cost."""
        data = {"tokens_in": tokens_in, "tokens_out": tokens_out, "cost": cost, "currency": currency}
        return self.record(Draft("model.responded", {**data, **filled(model=model, latency_ms=latency_ms)}))

    def remember(
        self, content: str, *, kind: str = "fact", entity: str = "", attribute: str = "", tags: Iterable[str] = ()
    ) -> R:
        """Propose a memory; the backend's curator decides. A preference, fact or correction needs a ``user``."""
        data = filled(content=content, kind=kind, entity=entity, attribute=attribute, tags=list(tags))
        return self.record(Draft("memory.proposed", data, counted=False))

    def heartbeat(self, detail: str = "") -> R:
        """The run is alive though it publishes nothing else."""
        return self.record(Draft("run.heartbeat", filled(detail=detail)))
