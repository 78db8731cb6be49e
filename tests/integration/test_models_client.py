"""The client of models against a real server: what each kind of answer means, and what endpoints ask for."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import pytest

from services.models.client import Models
from services.models.failure import ModelFailed
from services.models.gate import FAILURES
from services.models.routes import Route, Routes
from tests.model_server import CUT, ModelServer, Reply, good, model_server, problem, says

T = TypeVar("T")
ASK = [{"role": "user", "content": "hello"}]


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server() as running:
        yield running


def with_models(
    server: ModelServer | str,
    work: Callable[[Models], Awaitable[T]],
    *,
    budgets: dict[str, int] | None = None,
    **route: Any,
) -> T:
    url = server if isinstance(server, str) else server.url
    routes = Routes(models=[Route(model="*", base_url=url, **route)], tokens_a_day=budgets or {})

    async def scenario() -> T:
        models = Models(routes, {"A_KEY": "sesame"})
        try:
            return await work(models)
        finally:
            await models.close()

    return asyncio.run(scenario())


async def failing(models: Models, **more: Any) -> ModelFailed:
    with pytest.raises(ModelFailed) as caught:
        await models.ask("acme", "m", ASK, **more)
    return caught.value


def test_the_runs_own_model_is_asked_and_what_it_took_is_told(server: ModelServer) -> None:
    server.plan = [says("hi", after_s=0.05)]
    answer = with_models(server, lambda m: m.ask("acme", "m-7", ASK), key_env="A_KEY", price_in=10.0, price_out=50.0,
                         parameters={"temperature": 0})  # fmt: skip
    assert (answer.text, answer.complete, answer.tokens_in, answer.tokens_out) == ("hi", True, 100, 20)
    assert answer.cost == pytest.approx(0.002) and answer.latency_ms >= 50
    assert server.requests == [{"model": "m-7", "messages": ASK, "temperature": 0}]
    assert server.keys == ["Bearer sesame"]


def test_a_model_may_have_another_name_at_its_endpoint(server: ModelServer) -> None:
    with_models(server, lambda m: m.ask("acme", "m", ASK), name_there="org/m-v2")
    assert server.requests[0]["model"] == "org/m-v2"


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (problem(401), "no_model"), (problem(404, "no such model"), "no_model"), (problem(500), "unreachable"),
        (problem(400, "your request was rejected", "content_policy_violation"), "refused"),
        (problem(400, "This model's maximum context length is 8192 tokens", "context_length_exceeded"),
         "context_too_long"),
        (problem(413), "context_too_long"), (problem(429), "rate_limited"), (problem(504), "timeout"),
        (says("", refusal="I can't help with that"), "refused"), (says("", finish="content_filter"), "refused"),
        (CUT, "unreachable"), (Reply({"choices": []}), "invalid_output"), (Reply("not a completion"), "invalid_output"),
        (Reply(None), "invalid_output"),
    ],
)  # fmt: skip
def test_every_failure_has_one_of_the_reasons(server: ModelServer, reply: Reply, reason: str) -> None:
    server.plan = [reply]
    assert with_models(server, failing).reason == reason
    assert len(server.requests) == 1


def test_a_model_that_takes_too_long_is_not_waited_for(server: ModelServer) -> None:
    server.plan = [good(after_s=1.0)]
    assert with_models(server, failing, timeout_s=0.2).reason == "timeout"


def test_an_endpoint_that_is_not_there_is_unreachable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        assert with_models(url, failing).reason == "unreachable"


def test_a_model_without_a_route_is_not_asked(server: ModelServer) -> None:
    async def work(models: Models) -> ModelFailed:
        with pytest.raises(ModelFailed) as caught:
            await models.ask("acme", "", ASK)
        return caught.value

    failure = with_models(server, work)
    assert (failure.reason, failure.called, server.requests) == ("no_model", False, [])


def test_a_pause_that_an_endpoint_asks_for_is_kept(server: ModelServer) -> None:
    server.plan = [problem(429, Retry_After="40")]

    async def work(models: Models) -> tuple[ModelFailed, ModelFailed]:
        return await failing(models), await failing(models)

    limited, kept_away = with_models(server, work)
    assert (limited.reason, limited.called, limited.retry_s) == ("rate_limited", True, 40.0)
    assert (kept_away.reason, kept_away.called) == ("rate_limited", False)
    assert kept_away.retry_s is not None and 30 < kept_away.retry_s <= 40
    assert len(server.requests) == 1


def test_an_endpoint_that_is_away_is_left_alone_and_tried_by_one(server: ModelServer) -> None:
    """The circuit opens after some failures in a row; later one call tries, and its answer opens the way for all."""
    server.plan = [problem(503)] * FAILURES

    async def work(models: Models) -> list[str]:
        for _ in range(FAILURES):
            await failing(models)
        away = await failing(models)
        assert (away.reason, away.called) == ("unreachable", False)
        assert len(server.requests) == FAILURES
        await asyncio.sleep((away.retry_s or 0) + 0.05)
        server.plan = [good(after_s=0.3)]
        asked = [models.ask("acme", "m", ASK) for _ in range(4)]
        return [type(one).__name__ for one in await asyncio.gather(*asked, return_exceptions=True)]

    assert sorted(with_models(server, work)) == ["Answer", "ModelFailed", "ModelFailed", "ModelFailed"]
    assert len(server.requests) == FAILURES + 1


def test_no_more_calls_at_once_than_a_route_allows(server: ModelServer) -> None:
    server.plan = [good(after_s=0.05)] * 12

    async def work(models: Models) -> int:
        return len(await asyncio.gather(*(models.ask("acme", "m", ASK) for _ in range(12))))

    assert with_models(server, work, concurrency=3) == 12
    assert server.most_at_once == 3


def test_an_org_that_has_spent_its_budget_is_told_and_others_are_not(server: ModelServer) -> None:
    async def work(models: Models) -> ModelFailed:
        await models.ask("acme", "m", ASK)
        await models.ask("other", "m", ASK)
        return await failing(models)

    failure = with_models(server, work, budgets={"acme": 120, "*": 10**9})
    assert (failure.reason, failure.called, len(server.requests)) == ("budget", False, 2)


def test_an_endpoint_without_structured_output_is_asked_without_from_then_on(server: ModelServer) -> None:
    server.plan = [problem(400, "response_format is not supported")]

    async def work(models: Models) -> None:
        for _ in range(2):
            await models.ask("acme", "m", ASK, schema={"type": "object"})

    with_models(server, work, output="json_schema")
    assert ["response_format" in body for body in server.requests] == [True, False, False]
    sent = server.requests[0]["response_format"]
    assert sent == {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}}
