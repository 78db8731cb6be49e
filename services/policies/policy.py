"""A policy: the beliefs to tell for a context, and what to confirm first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from events.archive import queries
from events.errors import Refused
from events.keys import partition_of, scopes_of, task_key
from events.tokens import write_token
from projections.policy.selection import Rule, Selection, select
from projections.policy.situation import situation
from projections.policy.text import Told, tell
from projections.queries import tasks
from projections.queries.beliefs import without_secrets
from services.composition import Backend
from services.policies import why
from services.policies.doubt import doubt
from services.policies.scopes import PolicyScopes, judged_at
from services.starts import started_with

DEFAULT_TOKENS, MAX_TOKENS = 1_000, 100_000
MAX_FIELDS, MAX_CHARS = 64, 100_000
"""Fields that a caller adds to a context, and characters of all of them."""

STATE = "task_state"
_WHO = ("user", "agent")
_SHOWN = (
    "belief", "scope", "kind", "statement", "trigger", "limits", "tendency", "confidence", "status", "supports",
    "against", "last_verified",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PolicyRequest:
    """Whose policy, and for what. A ``task`` tells its agent, user, goal, mode, model, step and tools, as far as
    ``fields`` (of the context, by name) do not. ``tokens``: most of the text. ``why``: a belief of which is to be told
    why it is in the policy, or why not.
    """

    agent: str = ""
    user: str = ""
    task: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
    tokens: int = DEFAULT_TOKENS
    why: str = ""

    def __post_init__(self) -> None:
        for name in (*_WHO, "task"):
            if "\0" in getattr(self, name) or "\x1f" in getattr(self, name):
                raise _refused(name, "no name has a control character in it")
        if not 1 <= self.tokens <= MAX_TOKENS:
            raise _refused("tokens", f"1 to {MAX_TOKENS:,} tokens")
        if len(self.fields) > MAX_FIELDS or sum(len(str(item)) for item in self.fields.items()) > MAX_CHARS:
            raise _refused("fields", f"a context has at most {MAX_FIELDS} fields with {MAX_CHARS:,} characters in all")


async def policy(
    backend: Backend, scopes: PolicyScopes, org: str, request: PolicyRequest, now: datetime, after: str | None = None
) -> dict[str, Any]:
    """The policy document of a request: rules, constraints and notices apart, and all of them as text.

    Raises Refused (code ``no_checkpoint``) for an unknown task, and where the task is another user's or agent's.
    """
    state, tools = await _task(backend, org, request.task, now, after) if request.task else (None, None)
    context = situation(state, tools, **request.fields, **_who(request, state))
    names = list(scopes_of(context))
    found = await scopes.learned(org, names, now, after)
    selection = select(found.scopes, context, doubt=doubt)
    told = tell(selection, request.tokens)
    document = {**_document(selection, told), "scopes": names, "context": context, "read": found.note}
    if request.why:
        verdict = why.of_held(request.why, found.scopes, context, selection, told)
        rules = backend.belief_rules
        verdict = verdict or await why.of_any(backend.read_models, rules, org, request.why, names, judged_at(now))
        document["why"] = without_secrets(verdict)
    return document


async def _task(backend: Backend, org: str, task: str, now: datetime, after: str | None) -> tuple[dict[str, Any], Any]:
    """The state of a task with all of it that is durable, and the tools that its run declared."""
    key = task_key(task)
    last = await backend.db.read(partial(queries.last_of_key, org=org, key=key))
    if last is None:
        raise _unknown(task)
    newest = write_token([(partition_of(org, key, backend.partitions), last.position)])
    work = partial(tasks.task_document, org=org, task=task, now=now)
    found = await backend.read_models.read(STATE, work, after or newest, backend.settings.read_timeout_s)
    state = found.value
    if state is None:
        raise _unknown(task)
    started = partial(started_with, org=org, task=task, run=state["run"], upto=last.position)
    return state, (await backend.db.read(started))[1]


def _unknown(task: str) -> Refused:
    return Refused(f"nothing is known of task {task!r:.200}", code="no_checkpoint", field="task")


def _who(request: PolicyRequest, state: Mapping[str, Any] | None) -> dict[str, str]:
    """Whose policy it is. A task's is nobody else's."""
    for name in _WHO:
        named, of_task = getattr(request, name), (state or {}).get(name)
        if named and of_task and named != of_task:
            raise _refused(name, f"task {request.task!r:.200} is of another {name}: leave one of them out")
    return {name: getattr(request, name) or (state or {}).get(name) or "" for name in _WHO}


def _document(selection: Selection, told: Told) -> dict[str, Any]:
    return {
        "rules": [_rule(rule) for rule in told.rules if rule.rank != "constraint"],
        "constraints": [_rule(rule) for rule in told.rules if rule.rank == "constraint"],
        "notices": [without_secrets(dict(one)) for one in told.notices],
        "text": told.text,
        "tokens": told.tokens,
        "cut": {"rules": told.cut_rules, "notices": told.cut_notices, "more": any(told.more)},
    }


def _rule(rule: Rule) -> dict[str, Any]:
    shown = {name: rule.document[name] for name in _SHOWN if rule.document.get(name) not in (None, "", {}, [])}
    return {**without_secrets(shown), "standing": rule.rank == "standing", "doubtful": rule.doubtful}


def _refused(name: str, message: str) -> Refused:
    return Refused(f"`{name}`: {message}", code="bad_parameter", field=name)
