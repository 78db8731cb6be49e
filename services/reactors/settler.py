"""The settler: the notes that every run leaves, however it ended (DESIGN 6).

    run.terminated         settles the run
    settlement.requested   settles it again, as a new version

Nothing, when the run settled itself or another ending counts; *later*, while a run that settles itself has time left.
Else the run's own model is asked, and no other: once, and up to three times more, each more strictly. Every call is a
``settlement.attempted`` before the next one is made, so that whoever goes on after a kill counts it. In the end there
is one ``settlement.recorded`` with the whole answer, or one ``settlement.degraded`` with what the run's events prove.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import orjson

from events.door import admit
from events.errors import Refused
from events.types.settlement import DegradedReason, SettlementRequested
from projections.cards.secrecy import secrets
from services.models.client import Answer
from services.models.failure import ModelFailed
from services.reactors.evidence import clip, evidence
from services.reactors.reactor import Later, Reaction, Reactor
from services.reactors.settling.case import Case, open_case
from services.reactors.settling.conversation import conversation
from services.reactors.settling.products import SCHEMA, InvalidAnswer, read_answer
from services.reactors.settling.prompt import TRIES, instruction
from services.reactors.settling.window import fit, tokens_of

LOOK_AGAIN_S = 5.0
BACKOFF_S = (1.0, 3.0, 10.0)
"""Pauses after a call that an endpoint did not answer."""
SHRINK = 0.6
"""A conversation that was too long all the same is fitted into so much of its room, each time."""
ERROR_CHARS = 500
OLDER_RUNS = 1_000

Answered = Sequence[dict[str, Any]] | Later


async def settle(reaction: Reaction) -> Answered:
    """Settle the run that the source event is about, once."""
    case = open_case(reaction.recorded, await reaction.run_events())
    if case is None:
        return []
    if case.gave_up is not None:
        return [_degraded(reaction, case, case.gave_up.failed or "invalid_output", case.gave_up.error)]
    left_s = _time_left(reaction, case)
    if left_s > 0:
        return Later(min(left_s, LOOK_AGAIN_S))
    if len(case.attempts) >= TRIES:
        last = case.attempts[-1]
        return [_degraded(reaction, case, last.failed or "invalid_output", last.error)]
    return await _ask(reaction, case)


def _time_left(reaction: Reaction, case: Case) -> float:
    """Seconds that a run which settles itself still has. A lost one cannot: its agent is gone."""
    started = case.run.started
    asked = isinstance(reaction.recorded.payload, SettlementRequested)
    if asked or started is None or started.settles != "agent" or case.ending.payload.reason == "lost":
        return 0.0
    deadline_s = reaction.outside.settle_deadline_s
    return (deadline_s if started.settle_deadline_s is None else started.settle_deadline_s) - reaction.age_s()


async def _ask(reaction: Reaction, case: Case) -> Answered:
    """One call to the run's own model, and what it leads to."""
    models = reaction.outside.models
    route = models.route(case.model)
    if route is None:
        why = f"model {case.model!r} has no route" if case.model else "the run names no model"
        return [_degraded(reaction, case, "no_model", why)]
    facts = evidence(case.run)
    asked = instruction(case.told_ending(), facts, case.errors)
    too_long = sum(tried.failed == "context_too_long" for tried in case.attempts)
    room = int(route.room_tokens * SHRINK**too_long) - tokens_of(asked)
    messages = fit(conversation(case.events, await _system_prompt(reaction, case)), room)
    if messages is None:
        why = f"not even the conversation's ends fit into {room} tokens"
        return [_degraded(reaction, case, "context_too_long", why)]
    try:
        answer = await models.ask(reaction.event.org, case.model, [*messages, asked], schema=SCHEMA)
    except ModelFailed as failure:
        return _failed(reaction, case, failure)
    return _judge(reaction, case, answer)


def _failed(reaction: Reaction, case: Case, failure: ModelFailed) -> Answered:
    """The model gave no answer: again after a pause, or no more."""
    wait_s = failure.retry_s
    if not failure.called:
        if failure.reason in ("no_model", "budget") or reaction.age_s() > reaction.outside.settle_patience_s:
            return [_degraded(reaction, case, failure.reason, str(failure))]
        return Later(min(LOOK_AGAIN_S, wait_s or LOOK_AGAIN_S))
    tried = _attempt(reaction, case, None, failed=failure.reason, error=str(failure))
    if failure.reason == "no_model":
        return [tried, _degraded(reaction, case, "no_model", str(failure), attempts=len(case.attempts) + 1)]
    if wait_s is None:
        passes = failure.reason in ("timeout", "unreachable", "rate_limited")
        wait_s = BACKOFF_S[min(len(case.attempts), len(BACKOFF_S) - 1)] if passes else 0.0
    return Later(wait_s, [tried])


def _judge(reaction: Reaction, case: Case, answer: Answer) -> Answered:
    """Whether the answer is a settlement, one that the door lets in, too."""
    try:
        products = read_answer(answer.text, complete=answer.complete)
        recorded = _recorded(reaction, case, answer, secrets.masked(products.plain()))
        admit(recorded, max_bytes=reaction.outside.max_event_bytes)
    except (InvalidAnswer, Refused) as error:
        return Later(0.0, [_attempt(reaction, case, answer, failed="invalid_output", error=str(error))])
    return [_attempt(reaction, case, answer), recorded]


def _attempt(
    reaction: Reaction, case: Case, answer: Answer | None, *, failed: DegradedReason | None = None, error: str = ""
) -> dict[str, Any]:
    number = len(case.attempts) + 1
    data: dict[str, Any] = {"attempt": number, "by": "backend", "model": case.model}
    if failed:
        data |= {"failed": failed, "error": clip(error, ERROR_CHARS)}
    if answer:
        data |= {"tokens_in": answer.tokens_in, "tokens_out": answer.tokens_out, "cost": answer.cost}
        data |= {"latency_ms": round(answer.latency_ms, 1)}
    # a call that is made again after a kill is another one: its time is its own, its day the one it is paid on
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return {**_derive(reaction, "settlement.attempted", data, part=f"attempt/{number}"), "time": now}


def _recorded(reaction: Reaction, case: Case, answer: Answer, products: dict[str, Any]) -> dict[str, Any]:
    data = {
        **_common(case, len(case.attempts) + 1),
        "by": "backend",
        "model": case.model,
        "tokens_in": sum(tried.tokens_in for tried in case.attempts) + answer.tokens_in,
        "tokens_out": sum(tried.tokens_out for tried in case.attempts) + answer.tokens_out,
        **products,
    }
    return _derive(reaction, "settlement.recorded", data)


def _degraded(
    reaction: Reaction, case: Case, reason: DegradedReason, detail: str, *, attempts: int | None = None
) -> dict[str, Any]:
    data = {
        **_common(case, len(case.attempts) if attempts is None else attempts),
        "degraded": reason,
        "evidence": evidence(case.run),
        "detail": clip(detail, ERROR_CHARS),
    }
    return _derive(reaction, "settlement.degraded", data)


def _common(case: Case, attempts: int) -> dict[str, Any]:
    reason = case.ending.payload.reason
    return {"version": case.version, "reason": reason, "interrupted": case.is_interrupted, "attempts": attempts}


def _derive(reaction: Reaction, kind: str, data: dict[str, Any], *, part: str = "") -> dict[str, Any]:
    """An event of the run. Whatever settles it has one id, for there is to be one."""
    source = reaction.event
    names = {name: getattr(source, name) for name in ("agent", "user", "session", "task", "run")}
    return reaction.derive(kind, data, part=part, **names)


async def _system_prompt(reaction: Reaction, case: Case) -> Any:
    """The run's system prompt; one that is only named by its digest is looked for in the task's other runs."""
    prompt = case.run.started.system_prompt if case.run.started else None
    if prompt is None or prompt.content is not None:
        return prompt.content if prompt else None
    source = reaction.event
    for run in await reaction.archive.runs(source.org, limit=OLDER_RUNS, task=source.task):
        other = orjson.loads(run.data).get("system_prompt") or {}
        if other.get("digest") == prompt.digest and other.get("content") is not None:
            return other["content"]
    return None


SETTLER = Reactor(name="settler", handles=frozenset(("run.terminated", "settlement.requested")), react=settle)
