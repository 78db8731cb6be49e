"""One run as the agent's process knows it: its numbers, what is finished, how it ends. No I/O."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from refold.envelope import Draft, Scope, Wait, envelope
from refold.errors import Conflict
from refold.plain import fit, plain
from refold.resume import Resume, logger
from refold.vocabulary import Outcome, R, Reason, Vocabulary, filled, plan_digest, plan_steps

ERROR_STREAK = 3
"""So many steps and calls failed in a row before the exception that ended the run: the task fails, not this process."""


INTERRUPTING = frozenset(("interrupt", "timeout", "budget_exhausted", "lost", "panic_stop"))
"""Reasons for which a run ends before its work does."""


STATE_NAMES = frozenset((
    "pending_task", "goal", "current_phase", "completed_actions", "key_decisions", "rejected_paths", "open_questions",
    "plan_snapshot", "action_items",
))  # fmt: skip
"""What a session state is made of."""


def reason_of(error: BaseException | None, failures_in_a_row: int = 0) -> Reason:
    """Why a run ended, by how its block ended.

    No exception: ``end_turn``. Ctrl-C, a cancelled task, ``sys.exit`` or a closed generator: ``interrupt``.
    TimeoutError: ``timeout``. Any other exception: ``panic_stop``, after which the task can be resumed, or
    ``error_streak``, after which it has failed, when the last ERROR_STREAK steps and calls had all failed.
    """
    if error is None:
        return "end_turn"
    if is_interrupt(error):
        return "interrupt"
    if isinstance(error, (TimeoutError, asyncio.TimeoutError)):
        return "timeout"
    return "error_streak" if failures_in_a_row >= ERROR_STREAK else "panic_stop"


def is_interrupt(error: BaseException) -> bool:
    """Whether the block was stopped from outside rather than by a fault of its own."""
    return isinstance(error, asyncio.CancelledError) or not isinstance(error, Exception)


class RunCore:
    """State of one run. ``publish`` is thread-safe.

    A forked child's events carry no number: it would take the parent's. ``about`` is what ``run.started`` tells,
    ``versions`` the digests of what the run is configured with; the plan's joins them when there is one. ``notes``
    asks the agent's model at the run's end, where the run is to settle itself by it (see ``refold.settling``).
    """

    def __init__(
        self,
        scope: Scope,
        *,
        settles: str,
        about: Mapping[str, Any],
        versions: Mapping[str, str] | None = None,
        checkpoint_version: str = "",
    ) -> None:
        self.scope = scope
        self.versions = dict(versions or {})
        self.checkpoint_version = checkpoint_version
        self.resumed: Resume | None = None
        self.attempt = 1
        self.terminated = False
        self.failures_in_a_row = 0
        self._settles = settles
        self._about = about
        self._results: dict[str, Any] = {}
        self.notes: Callable[[str], Any] | None = None
        self.is_settled = False
        self._settlement: dict[str, Any] | None = None
        self._reason: Reason | None = None
        self._interrupted = False
        self._handed_on: Any = None
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._seq = 0

    def start(self, earlier: Resume | None, *, resume: bool = False) -> Draft:
        """The run begins, after earlier attempts. With ``resume`` it does not begin while in doubt that it may."""
        self.attempt = earlier.attempt + 1 if earlier else 1
        data = {"attempt": self.attempt, "settles": self._settles, **self._about}
        if earlier and not data.get("goal"):
            data["goal"] = earlier.goal
        return Draft("run.started", data, Wait.HARD if resume else Wait.SOFT, must_pass=True)

    def consider(self, earlier: Resume) -> None:
        """Look at what earlier attempts left before beginning. Raises NewerCheckpoint; says what has changed."""
        earlier.check_schema(self.checkpoint_version)
        for change in earlier.changed:
            logger.warning(
                "task %r goes on with another %s than its last attempt had: %s, before %s",
                self.scope.task, change.what, change.after, change.before,
            )  # fmt: skip

    def learn(self, resumed: Resume, earlier: Resume) -> None:
        """Take over what earlier attempts left, as it stands now that they can add nothing."""
        self.resumed = replace(resumed, changed=earlier.changed)
        self._results.update(resumed.results)
        plan = ((resumed.raw.get("config") or {}).get("digests") or {}).get("plan")
        if plan:
            self.versions.setdefault("plan", plan)

    def hand_on(self, result: Any) -> None:
        """Keep what the run hands on for its end."""
        self._handed_on = result

    def publish(self, draft: Draft, put: Callable[[dict[str, Any]], None]) -> None:
        """Give the draft its envelope and number, and put it in line, in one go."""
        if os.getpid() != self._pid:
            put(envelope(draft, self.scope))
            return
        with self._lock:
            self._seq += draft.counted
            put(envelope(draft, self.scope, seq=self._seq if draft.counted else 0))

    def publish_told(self, draft: Draft, put: Callable[[dict[str, Any]], None], ids: list[str]) -> None:
        """``publish``, and tell the event's id."""

        def keep(event: dict[str, Any]) -> None:
            ids.append(event["id"])
            put(event)

        self.publish(draft, keep)

    def finish(self, step: str, result: Any) -> None:
        """A step is done."""
        self._results[step] = result

    def done(self, step: str) -> bool:
        """Whether a step is done, in this attempt or an earlier one."""
        return step in self._results

    def result(self, step: str) -> Any:
        """The result of a finished step. Raises KeyError."""
        return self._results[step]

    def ended(self, failed: bool) -> None:
        """A step or call ended."""
        self.failures_in_a_row = self.failures_in_a_row + 1 if failed else 0

    def settle(self, members: dict[str, Any]) -> list[Draft]:
        """Keep the settlement for the end of the run; after the end it goes out at once."""
        if self._settles != "agent":
            raise ValueError('start the run with settles="agent": else the backend settles it as well')
        self._settlement, self.is_settled = members, True
        return self._settlement_due() if self.terminated else []

    @property
    def reason(self) -> str:
        """Why the run ended; empty while it has not."""
        return self._reason or ""

    def terminate(self, reason: Reason, outcome: Outcome | None, detail: str) -> list[Draft]:
        """The run ends; its settlement goes first. Only the first call counts."""
        if self.terminated:
            return []
        self.terminated, self._reason = True, reason
        self._interrupted = outcome == "interrupted" if outcome else reason in INTERRUPTING
        data = filled(reason=reason, outcome=outcome, detail=detail[:2000])
        if self._handed_on is not None:
            data["result"] = fit(self._handed_on)
        return [*self._settlement_due(), Draft("run.terminated", data, Wait.SOFT)]

    def end(self, error: BaseException | None) -> list[Draft]:
        """The run's block ended. A run that lost its task to another worker has nothing more to say."""
        if isinstance(error, Conflict):
            return []
        detail = "" if error is None else f"{type(error).__name__}: {error}"
        return self.terminate(reason_of(error, self.failures_in_a_row), None, detail)

    def _settlement_due(self) -> list[Draft]:
        if self._settlement is None:
            return []
        members, self._settlement = self._settlement, None
        data = {"by": "agent", "reason": self._reason, "interrupted": self._interrupted, **members}
        return [Draft("settlement.recorded", data, Wait.SOFT, counted=False)]


class RunWords(Vocabulary[R]):
    """What ``Run`` and ``AsyncRun`` have in common beyond the vocabulary."""

    core: RunCore

    @property
    def id(self) -> str:
        """The run's id."""
        return self.core.scope.run

    @property
    def task(self) -> str:
        """The task that this run is an attempt at."""
        return self.core.scope.task

    @property
    def attempt(self) -> int:
        """Which attempt at the task this run is, from 1."""
        return self.core.attempt

    @property
    def resumed(self) -> Resume | None:
        """What earlier attempts left, or None in a first attempt."""
        return self.core.resumed

    def done(self, step: str) -> bool:
        """Whether a step is done, in this attempt or an earlier one: then it must not be repeated."""
        return self.core.done(step)

    def pending(self, steps: Iterable[str]) -> list[str]:
        """The steps that are still to do, in the order given."""
        return [step for step in steps if not self.core.done(step)]

    def result(self, step: str) -> Any:
        """What a finished step, of this attempt or an earlier one, gave as its result. Raises KeyError."""
        return self.core.result(step)

    def plan(self, steps: Iterable[str | Mapping[str, Any]], *, reason: str = "") -> R:
        """Replace the plan. A text is a step's id; a mapping has ``id`` and may have ``title`` and ``status``.

        Steps that are done, by earlier attempts too, are planned as ``completed``: this run does not leave them open.
        """
        planned = plan_steps(steps)
        for step in planned:
            if self.core.done(str(step["id"])):
                step.setdefault("status", "completed")
        self.core.versions["plan"] = plan_digest(planned)
        return super().plan(planned, reason=reason)

    def request_approval(
        self, approval: str, *, action: str = "", arguments: Any = None, versions: Mapping[str, str] | None = None
    ) -> R:
        """The task waits for a person's yes to ``action``, asked under this run's model, prompt, tools and plan."""
        under = {**self.core.versions, **(versions or {})}
        return super().request_approval(approval, action=action, arguments=arguments, versions=under)

    def checkpoint(self, data: Any, *, data_version: str = "", checkpoint: str = "", milestone: bool = False) -> R:
        """Opaque state of the agent's own runtime; ``resume`` hands it back as it was. JSON values only."""
        version = data_version or self.core.checkpoint_version
        return super().checkpoint(data, data_version=version, checkpoint=checkpoint, milestone=milestone)

    def conclude(self, result: Any) -> None:
        """What the run hands on with its end: to its parent a distilled result, not its history."""
        self.core.hand_on(result)

    def skip(self, step: str, reason: str = "") -> R:
        """A step will not be done."""
        self.core.finish(step, None)
        return self.record(Draft("step.skipped", filled(step=step, reason=reason)))

    def settle(
        self,
        session_state: Mapping[str, Any],
        *,
        memories: Iterable[Any] = (),
        reflections: Iterable[str] = (),
        learnings: Iterable[Any] = (),
    ) -> R:
        """Leave the run's notes oneself; the run was started with ``settles="agent"``.

        They are published with the run's end, whose reason they carry; after it, at once. ``session_state`` may have
        pending_task, goal, current_phase, completed_actions, key_decisions, rejected_paths, open_questions,
        plan_snapshot and action_items; ValueError names what else it has.
        """
        if unknown := sorted(map(str, session_state.keys() - STATE_NAMES)):
            raise ValueError(
                f"a session state has no {', '.join(unknown)}; it has {', '.join(sorted(STATE_NAMES))}. "
                "Other notes are arguments of their own: memories=, reflections=, learnings="
            )
        members = {
            "session_state": plain(session_state),
            "memories": [fit(memory) for memory in memories],
            "reflections": [str(text) for text in reflections],
            "learnings": [fit(learning) for learning in learnings],
        }
        return self.record_all(self.core.settle(members))

    def terminate(self, reason: Reason, *, outcome: Outcome | None = None, detail: str = "") -> R:
        """End the run for a reason of one's own, rather than by how its block ends. Only the first end counts."""
        return self.record_all(self.core.terminate(reason, outcome, detail))
