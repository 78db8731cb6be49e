"""A run settles itself: at its end the agent's own model is asked for the run's notes, in the agent's own context.

``client.run(..., settle=ask)``: ``ask(prompt)`` hands the prompt to the agent's model, after all that it has seen, and
gives back what it answers. An answer that is no settlement is asked for again, three times at most, each time more
strictly and with what was wrong. After that the backend keeps what the run's events prove, and asks no model.
"""

from __future__ import annotations

import inspect
import math
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

import orjson

from refold.core import RunCore, RunWords
from refold.envelope import Draft

if TYPE_CHECKING:
    from refold.async_client import AsyncRun
    from refold.client import Run

Ask = Callable[[str], "str | Awaitable[str]"]
"""Hands a prompt to the agent's model; returns its answer. In the async client it may be a coroutine function."""

TRIES = 4
MAX_ITEMS = 64
ERROR_CHARS = 500

_FORM = """{
  "session_state": {
    "goal": "what this work is for",
    "current_phase": "where it stands now",
    "pending_task": "what to do next, in one sentence; empty if nothing",
    "completed_actions": [{"path": "file, place or id", "summary": "what was done, in one line"}],
    "key_decisions": ["a decision, and why"],
    "rejected_paths": ["what is not to be tried again, and why"],
    "open_questions": ["what is not known yet"],
    "plan_snapshot": ["each step of the plan, with its status"],
    "action_items": ["what somebody still has to do"]
  },
  "memories": [{"content": "one lasting fact, in a sentence of its own",
                "kind": "preference | fact | correction | procedure", "confidence": 0.9}],
  "reflections": ["what went well or badly in this run, and why"],
  "learnings": [{"content": "what to do, or not to do, next time", "confidence": 0.7}]
}"""

_STRICTER = (
    "Answer again with the JSON object only: no prose before or after it, no code fence.",
    "Every member as in the form, with its type; confidence is a number from 0 to 1; leave out what you do not know. "
    "Keep it under 600 words. Begin with { and end with }.",
    'This is the last time of asking. Answer with {"session_state": {"goal": "...", "current_phase": "..."}}, filled '
    "in, and nothing else.",
)

_FENCE = re.compile(r"```(?:json|JSON)?[ \t]*\n(.*?)\n?[ \t]*```", re.DOTALL)
_TEXTS = ("pending_task", "goal", "current_phase")
_LISTS = ("key_decisions", "rejected_paths", "open_questions", "action_items")
_KINDS = ("preference", "fact", "correction", "learning", "procedure", "convention")
_TYPES = ("semantic", "episodic", "procedural")


class Talk:
    """What is asked at a run's end, and what comes of the answers. No I/O."""

    def __init__(self, core: RunCore) -> None:
        self._core = core
        self._tries = 0
        self._error = ""
        self._asked_at = 0.0
        self.is_over = False

    def prompt(self) -> str:
        """The next prompt."""
        self._asked_at = time.monotonic()
        parts = [
            f"The run has ended: {self._core.reason}. Do not go on with the task and call no tool. Write down what "
            "whoever continues must know: they will not see this conversation. Answer with one JSON object of this "
            "form and nothing else:",
            _FORM,
            "Write in the language of the conversation. State only what it shows; what was interrupted is not done. "
            "Leave lists empty rather than guess. No passwords, keys or tokens.",
        ]
        if self._error:
            stricter = _STRICTER[min(self._tries, len(_STRICTER)) - 1]
            parts.append(f"Your last answer could not be used: {self._error}\n{stricter}")
        return "\n\n".join(parts)

    def answered(self, text: Any) -> list[Draft]:
        """What is to be published of an answer."""
        try:
            products = read_answer(text)
        except ValueError as error:
            return [self._attempt("invalid_output", str(error))]
        self.is_over = True
        return [self._attempt(), *self._core.settle({**products, "attempts": self._tries})]

    def failed(self, error: Exception) -> list[Draft]:
        """What is to be published where the agent's function raised."""
        reason = "timeout" if isinstance(error, TimeoutError) else "unreachable"
        return [self._attempt(reason, f"{type(error).__name__}: {error}")]

    def _attempt(self, failed: str = "", error: str = "") -> Draft:
        self._tries += 1
        data: dict[str, Any] = {"attempt": self._tries, "by": "agent"}
        data["latency_ms"] = round((time.monotonic() - self._asked_at) * 1000, 1)
        if failed:
            self._error = error[:ERROR_CHARS]
            data |= {"failed": failed, "error": self._error}
            if self._tries == TRIES:
                self.is_over = data["gave_up"] = True
        return Draft("settlement.attempted", data, counted=False)


def settle(run: Run, error: BaseException | None) -> None:
    """Have the agent's model settle the run that has just ended, where it is to."""
    ask, talk = run.core.notes, _talk(run, error)
    while ask is not None and talk is not None and not talk.is_over:
        try:
            text = ask(talk.prompt())
        except Exception as failure:  # noqa: BLE001  whatever it raises, its model gave no answer
            drafts = talk.failed(failure)
        else:
            drafts = talk.answered(text)
        run.record_all(drafts)


async def settle_async(run: AsyncRun, error: BaseException | None) -> None:
    """As ``settle``; the agent's function may be a coroutine function."""
    ask, talk = run.core.notes, _talk(run, error)
    while ask is not None and talk is not None and not talk.is_over:
        try:
            text = ask(talk.prompt())
            if inspect.isawaitable(text):
                text = await text
        except Exception as failure:  # noqa: BLE001  whatever it raises, its model gave no answer
            drafts = talk.failed(failure)
        else:
            drafts = talk.answered(text)
        await run.record_all(drafts)


def _talk(run: RunWords[Any], error: BaseException | None) -> Talk | None:
    """None where the run has its settlement or has lost its task, and where the process is to end at once."""
    if (
        run.core.is_settled
        or not run.core.terminated
        or isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit))
    ):
        return None
    return Talk(run.core)


def read_answer(text: Any) -> dict[str, Any]:
    """The four products in an answer, without what else it says. Raises ValueError, which says what is wrong."""
    if not isinstance(text, str) or not text.strip():
        raise ValueError("the answer is empty")
    found = next((value for part in _parts(text.strip()) if isinstance(value := _json(part), dict)), None)
    if found is None:
        raise ValueError(f"the answer is no JSON object; it begins {' '.join(text.split())[:80]!r}")
    return {
        "session_state": _state(_typed(found, "session_state", dict, "an object")),
        "memories": [_candidate(item, f"memories[{n}]") for n, item in enumerate(_list(found, "memories"))],
        "reflections": _strings(found, "reflections"),
        "learnings": [_learning(item, f"learnings[{n}]") for n, item in enumerate(_list(found, "learnings"))],
    }


def _parts(text: str) -> Iterator[str]:
    yield text[text.find("{") : text.rfind("}") + 1]
    yield from _FENCE.findall(text)


def _json(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def _state(found: dict[str, Any]) -> dict[str, Any]:
    state: dict[str, Any] = {name: _typed(found, name, str, "a text", "") for name in _TEXTS}
    state |= {name: _strings(found, name) for name in _LISTS}
    state["plan_snapshot"] = _list(found, "plan_snapshot")
    state["completed_actions"] = [
        {name: _typed(item, name, str, "a text", "") for name in ("path", "summary")}
        for item in (_object(item, "completed_actions") for item in _list(found, "completed_actions"))
    ]
    if not any(state.values()):
        raise ValueError("`session_state` says nothing: give at least `goal` and `current_phase`")
    return state


def _candidate(item: Any, place: str) -> dict[str, Any]:
    found = _object(item, place)
    candidate = {"content": _content(found, place), **_number(found, "confidence", place, 1.0)}
    candidate |= _number(found, "ttl_s", place, math.inf)
    for name, allowed in (("kind", _KINDS), ("memory_type", _TYPES)):
        if name in found:
            if found[name] not in allowed:
                raise ValueError(f"`{place}.{name}` is one of {', '.join(allowed)}")
            candidate[name] = found[name]
    for name in ("entity", "attribute"):
        candidate[name] = _typed(found, name, str, "a text", "")
    return {**candidate, "tags": _strings(found, "tags")}


def _learning(item: Any, place: str) -> Any:
    if isinstance(item, str) and item.strip():
        return item
    found = _object(item, place)
    return {"content": _content(found, place), **_number(found, "confidence", place, 1.0)}


def _content(found: dict[str, Any], place: str) -> str:
    content = _typed(found, "content", str, "a text", "")
    if not content.strip():
        raise ValueError(f"`{place}.content` is missing or empty")
    return str(content)


def _number(found: dict[str, Any], name: str, place: str, most: float) -> dict[str, float]:
    if name not in found:
        return {}
    value = found[name]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= most:
        raise ValueError(f"`{place}.{name}` is a number from 0{'' if most == math.inf else f' to {most:g}'}")
    return {name: value}


def _strings(found: dict[str, Any], name: str) -> list[str]:
    items = _list(found, name)
    if not all(isinstance(item, str) for item in items):
        raise ValueError(f"`{name}` is a list of texts")
    return items


def _list(found: dict[str, Any], name: str) -> list[Any]:
    items: list[Any] = _typed(found, name, list, "a list", [])
    if len(items) > MAX_ITEMS:
        raise ValueError(f"`{name}` has more than {MAX_ITEMS} items")
    return items


def _object(item: Any, place: str) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise ValueError(f"`{place}` is not an object")  # noqa: TRY004  an answer is wrong, not a caller
    return item


def _typed(found: dict[str, Any], name: str, kind: type, called: str, default: Any = None) -> Any:
    value = found.get(name, default)
    if not isinstance(value, kind):
        wrong = "missing" if name not in found else f"not {called}"
        raise ValueError(f"`{name}` is {wrong}")  # noqa: TRY004  an answer is wrong, not a caller
    return value
