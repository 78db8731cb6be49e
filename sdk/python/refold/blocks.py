"""Steps and tool calls: what opens and what closes them. No I/O; the clients publish what is returned here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from inspect import signature
from typing import Any

from refold.core import RunCore, is_interrupt
from refold.envelope import Draft, Wait
from refold.errors import UncertainEffect
from refold.ids import idempotency_key, uuid7
from refold.plain import fit, plain
from refold.resume import Call
from refold.vocabulary import filled

_current_steps: ContextVar[tuple[tuple[str, str], ...]] = ContextVar("refold_steps", default=())
"""The open steps as (run, step), innermost last."""


class StepCore:
    """A step. Set ``summary`` and ``result`` before its block ends."""

    def __init__(self, run: RunCore, step: str, title: str) -> None:
        self.id = step
        self.title = title
        self.summary = ""
        self.result: Any = None
        self._run = run
        self._token: Token[tuple[tuple[str, str], ...]] | None = None

    def opening(self) -> list[Draft]:
        """The step begins."""
        self._token = _current_steps.set((*_current_steps.get(), (self._run.scope.run, self.id)))
        return [Draft("step.started", filled(step=self.id, title=self.title))]

    def closing(self, error: BaseException | None) -> list[Draft]:
        """The step ends. One that was interrupted neither completed nor failed, and says nothing."""
        if self._token is not None:
            _current_steps.reset(self._token)
            self._token = None
        if error is not None and is_interrupt(error):
            return []
        self._run.ended(failed=error is not None)
        if error is not None:
            text = f"{type(error).__name__}: {error}"[:4000]
            return [Draft("step.failed", filled(step=self.id, title=self.title, error=text), Wait.SOFT)]
        self._run.finish(self.id, self.result)
        data = filled(step=self.id, title=self.title, summary=self.summary, result=fit(self.result))
        return [Draft("step.completed", data, Wait.SOFT)]


class CallCore:
    """A tool call. ``key`` names its effect in every attempt; ``done`` says that an earlier attempt already did it.

    Set ``result`` before its block ends; when ``done``, it is what ``already_done`` found, or what the log tells.
    """

    def __init__(
        self, run: RunCore, name: str, arguments: Any, *, side_effect: bool, step: str | None, key: str | None
    ) -> None:
        self.name = name
        self.arguments = fit(arguments)
        self.side_effect = side_effect
        self.step = step if step is not None else _step_of(run.scope.run)
        # the key is made of the whole arguments, however large, and not of what is published of them
        self.key = key or idempotency_key(run.scope.task, self.step, name, plain(arguments))
        self.call_id = uuid7()
        self.done = False
        self.result: Any = None
        self._run = run
        self._earlier = run.resumed.in_flight_call(self.key) if run.resumed else None
        self._recorded = run.resumed.effect_done(self.key) if run.resumed and side_effect else None

    def must_ask(self, has_check: bool) -> bool:
        """Whether to ask if the effect was already done. Raises UncertainEffect when it may be, and nobody can tell.

        Without a check the log's word counts: what returned in an earlier attempt, and is not under way again, is done.
        """
        if not self.side_effect or self._run.resumed is None:
            return False
        if self._earlier is not None and not has_check:
            raise UncertainEffect(
                f"{self.name} was in flight when an earlier attempt at {self._run.scope.task} ended: "
                "pass already_done=, which is given the call's key and returns what the effect gave, or None",
                key=self.key,
            )
        if self._recorded is not None and not has_check:
            self.done, self.result = True, self._recorded.result
        return has_check

    def found(self, result: Any) -> None:
        """What ``already_done`` said: None or False for an effect that was not done."""
        if result is not None and result is not False:
            recorded = self._recorded.result if self._recorded is not None else None
            self.done, self.result = True, recorded if result is True else result

    def opening(self, expected_s: float | None) -> list[Draft]:
        """The call begins; one with a side effect is durable before the effect."""
        if self.done:
            return []
        data = filled(call_id=self.call_id, name=self.name, step=self.step, expected_s=expected_s)
        data.update(arguments=self.arguments, idempotency_key=self.key, side_effect=self.side_effect)
        wait = Wait.HARD if self.side_effect else Wait.NO
        drafts = [Draft("tool.called", data, wait, must_pass=self.side_effect)]
        if self._earlier is not None and self.side_effect:
            error = f"not done by its own attempt; attempt {self._run.attempt} does it"
            drafts.insert(0, self._earlier_end(self._earlier, "tool.failed", error=error))
        return drafts

    def not_called(self, error: BaseException) -> list[Draft]:
        """The call could not be recorded, so its effect is not done."""
        return [self._end("tool.failed", error=f"not called: {error}")]

    def closing(self, error: BaseException | None) -> list[Draft]:
        """The call ends. An interrupted one stays in flight: whether it took effect is not known here."""
        if error is not None and is_interrupt(error):
            return []
        if self.done and error is None:
            # what is not in flight any more has its result in the log already
            return [self._earlier_end(self._earlier, "tool.returned", result=fit(self.result))] if self._earlier else []
        self._run.ended(failed=error is not None)
        if error is not None:
            return [self._end("tool.failed", error=f"{type(error).__name__}: {error}"[:4000])]
        return [self._end("tool.returned", result=fit(self.result))]

    def late(self, drafts: list[Draft]) -> list[Draft]:
        """The call's end as the backend takes it after another worker took over the task."""
        return [Draft(draft.type, {**draft.data, "late": True}, counted=False) for draft in drafts]

    def _end(self, kind: str, **members: Any) -> Draft:
        wait = Wait.SOFT if self.side_effect else Wait.NO
        return Draft(kind, {"call_id": self.call_id, "name": self.name, **members}, wait)

    def _earlier_end(self, earlier: Call, kind: str, **members: Any) -> Draft:
        """The end of an earlier attempt's call, under its own run."""
        data = {"call_id": earlier.call_id, "name": self.name, "late": True, **members}
        return Draft(kind, data, Wait.SOFT, counted=False, run=earlier.run or None)


def arguments_of(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name, defaults included."""
    bound = signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)


def _step_of(run: str) -> str:
    return next((step for owner, step in reversed(_current_steps.get()) if owner == run), "")
