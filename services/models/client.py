"""One client for every model: any OpenAI-compatible endpoint, asked once a call.

It keeps what the endpoints ask for (how many calls at once, pauses, time-outs) and what each org may spend. It never
repeats a call by itself, but for one: an endpoint that knows no structured output is asked again without, and from
then on. Whoever asks decides whether to ask again, and counts it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec

from events.types.settlement import DegradedReason
from services.models.budget import Budget
from services.models.failure import ModelFailed, of_status
from services.models.gate import Gate
from services.models.routes import Route, Routes, key_of

if TYPE_CHECKING:  # half a second to import: only a process that asks a model does
    from openai import APIStatusError, AsyncOpenAI

_ERROR_CHARS = 300


class Answer(NamedTuple):
    """What a model answered. ``complete`` is false where it was cut at its longest; ``latency_ms`` is of the call."""

    text: str
    complete: bool
    tokens_in: int
    tokens_out: int
    cost: float
    latency_ms: float


class _Message(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Completion(msgspec.Struct):
    """What is read of a chat completion."""

    choices: Annotated[list[_Choice], msgspec.Meta(min_length=1)]
    usage: _Usage | None = None


@dataclass
class _Endpoint:
    gate: Gate
    slots: asyncio.Semaphore
    client: AsyncOpenAI


@dataclass
class Models:
    """The models that have routes. Use it within one event loop, and ``close`` it there.

    ``environ`` holds the keys that routes name.
    """

    routes: Routes = field(default_factory=Routes)
    environ: Mapping[str, str] = field(default_factory=dict)
    budget: Budget = field(init=False)
    _endpoints: dict[tuple[str, str], _Endpoint] = field(default_factory=dict)
    _unstructured: set[str] = field(default_factory=set)
    _making: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self.budget = Budget(self.routes)

    def route(self, model: str) -> Route | None:
        """Where a model is; None where nothing says."""
        return self.routes.find(model)

    async def ask(
        self, org: str, model: str, messages: Sequence[Mapping[str, Any]], *, schema: Mapping[str, Any] | None = None
    ) -> Answer:
        """Ask a model once, on behalf of an org. ``schema``: the answer is to be a JSON object of this JSON Schema.

        Raises ModelFailed.
        """
        route = self.route(model)
        if route is None:
            named = f"model {model!r} has no route" if model else "the run names no model"
            raise ModelFailed("no_model", named, called=False)
        if await self.budget.is_spent(org):
            limit = self.routes.budget(org)
            raise ModelFailed("budget", f"the {limit} tokens a day of this org are spent", called=False)
        endpoint = await self._endpoint(route)
        async with endpoint.slots:
            wait_s = endpoint.gate.wait_s(time.monotonic())
            if wait_s:
                reason: DegradedReason = "unreachable" if endpoint.gate.is_open else "rate_limited"
                raise ModelFailed(reason, f"no calls for {wait_s:.0f} s", retry_s=wait_s, called=False)
            answer = await self._call(endpoint, route, model, messages, schema)
        self.budget.spend(org, answer.tokens_in + answer.tokens_out)
        return answer

    async def close(self) -> None:
        """Close every connection."""
        for endpoint in self._endpoints.values():
            await endpoint.client.close()
        self._endpoints.clear()

    async def _endpoint(self, route: Route) -> _Endpoint:
        place = (route.base_url, route.key_env)
        async with self._making:
            if place not in self._endpoints:
                client = await asyncio.to_thread(_client, route, key_of(route, self.environ))
                self._endpoints[place] = _Endpoint(Gate(), asyncio.Semaphore(route.concurrency), client)
            return self._endpoints[place]

    async def _call(
        self,
        endpoint: _Endpoint,
        route: Route,
        model: str,
        messages: Sequence[Mapping[str, Any]],
        schema: Mapping[str, Any] | None,
    ) -> Answer:
        output = "text" if schema is None or model in self._unstructured else route.output
        request = {"model": route.name_there or model, "messages": messages, **_format(output, schema)}
        began = time.monotonic()
        endpoint.gate.begin()
        try:
            response = await _create(endpoint.client, request, route)
        except ModelFailed as failure:
            self._told(endpoint.gate, failure)
            if output != "text" and failure.reason == "refused" and "response_format" in str(failure):
                self._unstructured.add(model)
                return await self._call(endpoint, route, model, messages, schema)
            raise
        except asyncio.CancelledError:
            endpoint.gate.abandoned()
            raise
        endpoint.gate.answered()
        return _answer(response, route, (time.monotonic() - began) * 1000)

    def _told(self, gate: Gate, failure: ModelFailed) -> None:
        """What a failure says of the endpoint."""
        now = time.monotonic()
        if failure.reason == "rate_limited":
            failure.retry_s = gate.limited(now, failure.retry_s)
        elif failure.reason in ("unreachable", "timeout"):
            gate.failed(now)
            if failure.retry_s is not None:
                gate.limited(now, failure.retry_s)
        else:
            gate.answered()


def _client(route: Route, key: str) -> AsyncOpenAI:
    """A client of an endpoint: made once, for it reads every certificate there is."""
    from openai import AsyncOpenAI

    # an endpoint without a key has none to check; the client insists on one
    return AsyncOpenAI(base_url=route.base_url, api_key=key or "none", max_retries=0, timeout=route.timeout_s)


def _format(output: str, schema: Mapping[str, Any] | None) -> dict[str, Any]:
    if output == "json_schema":
        return {"response_format": {"type": output, "json_schema": {"name": "answer", "schema": schema}}}
    return {"response_format": {"type": output}} if output == "json_object" else {}


async def _create(client: AsyncOpenAI, request: dict[str, Any], route: Route) -> _Completion:
    """One request. Raises ModelFailed."""
    from openai import APIConnectionError, APIError, APIStatusError, APITimeoutError

    body = {**request, **route.parameters}
    try:
        async with asyncio.timeout(route.timeout_s):  # the client's own bounds each read, not the call
            # not by ``chat.completions.create``: that walks through every message, and takes twice the time
            found = await client.post("/chat/completions", body=body, cast_to=object)
        return msgspec.convert(found, _Completion)
    except (TimeoutError, APITimeoutError) as error:
        raise ModelFailed("timeout", f"no answer within {route.timeout_s:g} s") from error
    except APIConnectionError as error:
        raise ModelFailed("unreachable", _brief(f"{error.__cause__ or error}")) from error
    except APIStatusError as error:
        raise of_status(error.status_code, _said(error), error.response.headers) from error
    except (APIError, ValueError) as error:
        raise ModelFailed("invalid_output", _brief(f"the answer is no chat completion: {error}")) from error


def _answer(response: _Completion, route: Route, latency_ms: float) -> Answer:
    """What a completion says. Raises ModelFailed for a refusal."""
    choice, usage = response.choices[0], response.usage or _Usage()
    if choice.message.refusal or choice.finish_reason == "content_filter":
        raise ModelFailed("refused", _brief(choice.message.refusal or "a content filter withheld the answer"))
    tokens_in, tokens_out = max(0, usage.prompt_tokens or 0), max(0, usage.completion_tokens or 0)
    return Answer(
        choice.message.content or "", choice.finish_reason != "length", tokens_in, tokens_out,
        route.cost(tokens_in, tokens_out), latency_ms,
    )  # fmt: skip


def _said(error: APIStatusError) -> str:
    """What the body says: its message and code, else the body."""
    body = error.body
    if isinstance(body, dict):
        parts = [str(body[name]) for name in ("code", "type", "param", "message") if body.get(name)]
        return _brief(" ".join(parts) or str(body))
    return _brief(str(body or error.message))


def _brief(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _ERROR_CHARS else line[: _ERROR_CHARS - 1] + "…"
