"""Policies on a real instance: whose they are, in which context, first and always; the same in contexts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx2
import orjson
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent
from refold import AsyncRefold, Refold

from tests.coroutines import in_loop
from tests.instance import REFOLD, ROOT, Instance, environment, running_instance, until

ONLY = "Give conclusions without the process"


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running_instance(tmp_path_factory.mktemp("policy") / "data") as running:
        yield running


def event(instance: Instance, type: str, data: dict[str, Any], **members: Any) -> dict[str, Any]:
    raw = instance.event("", f"belief.{type}", data, **members)
    del raw["run"], raw["time"]
    return raw


def believe(instance: Instance, name: str, statement: str, **more: Any) -> str:
    """A belief with three occasions that speak for it; the token of the last. ``more``: of data, and of the event."""
    who, org = {key: more.pop(key) for key in ("user", "agent") if key in more}, more.pop("org", "default")
    level = "user" if "user" in who else "agent" if "agent" in who else "org"
    data = {"belief": name, "kind": "learning", "statement": statement, "scope": level, **more}
    verified = [
        event(instance, "verified", {"belief": name, "supports": True, "source": f"s{n}", "scope": level}, **who)
        for n in range(3)
    ]
    proposed = event(instance, "proposed", data, **who)
    answer = instance.publish(proposed, *verified, headers={"x-refold-org": org})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["outcomes"][-1]["token"])


def policy(instance: Instance, org: str = "default", **params: Any) -> dict[str, Any]:
    def read() -> dict[str, Any] | None:
        answer = instance.http.get("/v1/policy", params=params, headers={"x-refold-org": org})
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found if found["read"]["reached"] else None

    return until(read)


def names(found: dict[str, Any]) -> list[str]:
    return [rule["belief"] for rule in found["rules"]]


def test_a_trigger_tells_a_rule_in_one_context_and_not_in_the_other(instance: Instance) -> None:
    agent = instance.name("agent")
    trigger = {"all": [{"field": "goal", "has": "refund"}, {"field": "amount", "above": 100}]}
    token = believe(instance, "b1", "Ask before large refunds", agent=agent, trigger=trigger)
    there = policy(instance, agent=agent, goal="Pay the refunds", amount="120.5", after=token)
    assert names(there) == ["b1"] and there["context"]["amount"] == "120.5"
    assert there["text"].splitlines() == ["Rules, the user's own first:", "- Ask before large refunds"]
    assert names(policy(instance, agent=agent, goal="Pay the refunds", amount="99", after=token)) == []
    assert policy(instance, agent=agent, after=token)["text"] == ""


def test_two_users_of_one_agent_and_two_orgs_never_touch(instance: Instance) -> None:
    agent, ada, bob, org = (instance.name(stem) for stem in ("agent", "ada", "bob", "org"))
    believe(instance, "shared", "Search first", agent=agent)
    believe(instance, "rule/1", ONLY, user=ada, kind="user_preference")
    believe(instance, "secret", "Of another org", agent=agent, org=org)
    token = believe(instance, "rule/2", "Explain every step", user=bob, kind="user_preference", org=org)
    mine = policy(instance, agent=agent, user=ada, after=token)
    assert names(mine) == ["rule/1", "shared"] and mine["rules"][0]["standing"]
    assert mine["scopes"] == [f"user/{ada}", f"agent/{agent}", "org"]
    assert names(policy(instance, agent=agent, user=bob, after=token)) == ["shared"]
    assert names(policy(instance, agent=agent, after=token)) == ["shared"]
    theirs = policy(instance, org, agent=agent, user=bob)
    assert names(theirs) == ["rule/2", "secret"]
    assert names(policy(instance, org, agent=agent, user=ada)) == ["secret"]
    again = policy(instance, agent=agent, user=ada)
    assert again["text"] == mine["text"]  # the same bytes for the same state


def test_any_field_may_be_named_tools_and_state_too(instance: Instance) -> None:
    agent = instance.name("agent")
    trigger = {"all": [{"field": "tools", "is": "pay"}, {"field": "state", "is": "open"}]}
    token = believe(instance, "b1", "Ask before refunds", agent=agent, trigger=trigger)
    there = policy(instance, agent=agent, tools="search,pay", state="open", after=token)
    assert names(there) == ["b1"] and there["context"]["tools"] == ["search", "pay"]
    assert names(policy(instance, agent=agent, tools="search", state="open", after=token)) == []
    assert names(policy(instance, agent=agent, state="open", after=token)) == []


def test_why_a_belief_is_told_or_not(instance: Instance) -> None:
    agent = instance.name("agent")
    believe(instance, "b1", "Ask before refunds", agent=agent, trigger={"field": "goal", "has": "refund"}, confidence=1)
    believe(instance, "b2", "Do not ask before refunds", agent=agent, confidence=0.75)
    rare = {"belief": "b3", "kind": "learning", "statement": "Be kind", "scope": "agent"}
    token = instance.stored(event(instance, "proposed", rare, agent=agent))

    def verdict(belief: str, **params: Any) -> str:
        return str(policy(instance, agent=agent, why=belief, after=token, **params)["why"]["verdict"])

    assert verdict("b1", goal="a refund") == "told" and verdict("b1", goal="a flight") == "trigger"
    assert verdict("b2", goal="a refund") == "said_already" and verdict("b2") == "told"
    assert verdict("b2", tokens=2) == "no_room"
    assert verdict("b3") == "candidate" and verdict("b4") == "unknown"


def test_what_happens_in_a_scope_is_in_the_next_policy(instance: Instance) -> None:
    user = instance.name("user")
    token = believe(instance, "rule/1", ONLY, user=user, kind="user_preference")
    assert names(policy(instance, user=user, after=token)) == ["rule/1"]
    elsewhere = believe(instance, "rule/1", ONLY, user=instance.name("user"), kind="user_preference")
    assert names(policy(instance, user=user, after=elsewhere)) == ["rule/1"]
    gone = instance.stored(event(instance, "retracted", {"belief": "rule/1", "scope": "user"}, user=user))
    assert names(policy(instance, user=user, after=gone)) == []
    back = believe(instance, "rule/1", ONLY, user=user, kind="user_preference")
    assert names(policy(instance, user=user, after=back)) == ["rule/1"]


def test_a_task_tells_whose_policy_it_is_and_for_what(instance: Instance) -> None:
    task, agent, user = (instance.name(stem) for stem in ("task", "agent", "user"))
    tools = {"digest": "d1", "content": [{"name": "search", "input_schema": {}}]}
    started = {"goal": "Refund order 7", "mode": "precise_planning", "tools": tools}
    events = [
        instance.event(f"{task}-r", type, data, task=task, agent=agent, user=user)
        for type, data in (("run.started", started), ("plan.updated", {"steps": [{"id": "s1", "title": "Look it up"}]}))
    ]
    instance.stored(*events)
    for name, trigger in (
        ("goal", {"field": "goal", "has": "refunds"}),
        ("mode", {"field": "mode", "is": "precise_planning"}),
        ("step", {"field": "step", "is": "look it up"}),
        ("tools", {"field": "tools", "is": "search"}),
        ("other", {"field": "mode", "is": "creative"}),
    ):
        token = believe(instance, name, f"About the {name}", agent=agent, trigger=trigger)
    token = believe(instance, "rule/1", ONLY, user=user, kind="user_preference")
    found = policy(instance, task=task, after=token)
    assert names(found) == ["rule/1", "goal", "mode", "step", "tools"]
    assert found["context"]["tools"] == ["search"] and found["context"]["user"] == user
    assert "other" in names(policy(instance, task=task, mode="creative"))
    context = instance.http.post("/v1/context", json={"task": task, "max_tokens": 60, "after": token}).json()
    assert f"## policy\nRules, the user's own first:\n- {ONLY}" in context["text"]
    whole = instance.http.post("/v1/context", json={"task": task, "after": token}).json()
    part = next(part["text"] for part in whole["parts"] if part["name"] == "policy")
    assert part == f"## policy\n{found['text']}"
    replayed = until(lambda: (a := instance.http.get(f"/v1/context/{whole['context']}")).status_code == 200 and a)
    assert replayed.json()["text"] == whole["text"]
    answer = instance.http.get("/v1/policy", params={"task": task, "user": "somebody-else"})
    assert answer.status_code == 422 and answer.json()["code"] == "bad_parameter"


@pytest.mark.parametrize(
    ("params", "status", "code"),
    [
        ({"tokens": "0"}, 422, "bad_parameter"),
        ({"tokens": "many"}, 422, "bad_parameter"),
        ({"task": "unheard of"}, 404, "no_checkpoint"),
        ({"user": "a\0b"}, 422, "bad_parameter"),
        ({f"f{n}": "x" for n in range(65)}, 422, "bad_parameter"),
        ({"after": "nonsense"}, 422, "bad_token"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(
    instance: Instance, params: dict[str, str], status: int, code: str
) -> None:
    answer = instance.http.get("/v1/policy", params=params)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text


def test_the_sdk_asks_for_a_policy_and_a_run_for_that_of_its_task(instance: Instance) -> None:
    agent, user = instance.name("agent"), instance.name("user")
    trigger = {"all": [{"field": "path", "in": ["a", "b"]}, {"field": "goal", "has": "order"}]}
    token = believe(instance, "b1", "Look twice", agent=agent, trigger=trigger)
    with Refold(instance.url) as client:
        assert names(client.policy(agent=agent, after=token, path=["x", "b"], goal="the order")) == ["b1"]
        assert names(client.policy(agent=agent, after=token, path="x", goal="the order")) == []
        with client.run("an order", agent=agent, user=user) as run:
            assert names(run.policy(path="a")) == ["b1"] and run.policy(path="a", tokens=2)["cut"]["rules"] == 1
            assert run.policy(path="c")["rules"] == []
    # what was told is recorded, once for each time, so that what happens next counts for it or against it
    (told,) = until(lambda: recorded(instance, run.task))
    assert told["data"]["policy"] == [[f"agent/{agent}", "b1"]] and told["task"] == run.task


def recorded(instance: Instance, task: str) -> list[dict[str, Any]]:
    """Records of what a task was told."""
    lines = instance.http.get(f"/v1/tasks/{quote(task, safe='')}/export").text.splitlines()
    return [one for one in map(orjson.loads, lines) if one.get("type") == "context.assembled"]


@in_loop
async def test_the_async_sdk_asks_alike(instance: Instance) -> None:
    agent = instance.name("agent")
    token = believe(instance, "b1", "Look twice", agent=agent, trigger={"field": "path", "is": "b"})
    async with AsyncRefold(instance.url) as client:
        assert names(await client.policy(agent=agent, after=token, path="b")) == ["b1"]
        async with client.run("an order", agent=agent) as run:
            assert names(await run.policy(path="b")) == ["b1"]


def test_the_command_prints_text_for_a_system_prompt(instance: Instance) -> None:
    user = instance.name("user")
    trigger = {"field": "channel", "is": "mail"}
    believe(instance, "rule/2", "Sign every mail", user=user, trigger=trigger)
    token = believe(instance, "rule/1", ONLY, user=user, kind="user_preference")
    policy(instance, user=user, after=token)
    told = instance.refold("policy", "--user", user, "--field", "channel=mail")
    assert told.returncode == 0, told.stderr
    assert told.stdout.decode().splitlines()[1:] == [f"- {ONLY}", "- Sign every mail"]
    assert b"2 rules of user/" in told.stderr
    why = instance.refold("policy", "--user", user, "--why", "rule/2")
    assert b"its trigger does not hold in this context" in why.stdout, why.stderr


@in_loop
async def test_mcp_tells_the_policy_of_whom_the_headers_name(instance: Instance) -> None:
    agent, ada, bob = (instance.name(stem) for stem in ("agent", "ädä", "bob"))
    believe(instance, "b1", "Ask before refunds", agent=agent, trigger={"field": "tool", "is": "refund"})
    token = believe(instance, "rule/1", ONLY, user=ada, kind="user_preference")
    policy(instance, user=ada, agent=agent, after=token)
    headers = {"x-refold-agent": agent, "x-refold-user": ada}
    http = httpx2.AsyncClient(headers=httpx2.Headers(headers, encoding="utf-8"))
    async with http, Client(streamable_http_client(f"{instance.url}/mcp", http_client=http)) as client:
        (tool,) = (await client.list_tools()).tools
        assert tool.name == "get_policy" and tool.annotations is not None and tool.annotations.read_only_hint
        assert not {"agent", "user", "org", "task", "context"} & set(tool.input_schema["properties"])
        asked = {"tool": "refund", "user": bob, "agent": "another"}  # what the model says of them is nothing
        assert said(await client.call_tool("get_policy", asked)).splitlines()[1:] == [
            f"- {ONLY}",
            "- Ask before refunds",
        ]
        wrong = await client.call_tool("get_policy", {"tokens": 0})
        assert wrong.is_error and "tokens" in said(wrong)
    async with Client(streamable_http_client(f"{instance.url}/mcp")) as client:
        assert ONLY not in said(await client.call_tool("get_policy", {"tool": "refund"}))


@in_loop
async def test_mcp_on_standard_input_and_output(instance: Instance) -> None:
    user = instance.name("user")
    token = believe(instance, "rule/1", ONLY, user=user, kind="user_preference")
    policy(instance, user=user, after=token)
    environ = environment(REFOLD_DATA=str(instance.data), PYTHONPATH=str(ROOT))
    command = StdioServerParameters(command=REFOLD[0], args=[*REFOLD[1:], "mcp", "--user", user], env=environ, cwd=ROOT)
    async with Client(stdio_client(command)) as client:
        assert ONLY in said(await client.call_tool("get_policy", {}))


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [("GET", {}, 405), ("DELETE", {}, 405), ("POST", {"origin": "https://evil.example"}, 403)],
)
def test_mcp_serves_neither_sessions_nor_pages_from_elsewhere(
    instance: Instance, method: str, headers: dict[str, str], status: int
) -> None:
    assert instance.http.request(method, "/mcp", headers=headers).status_code == status


def said(result: CallToolResult) -> str:
    """What a tool answered."""
    return "".join(block.text for block in result.content if isinstance(block, TextContent))


SAID = (
    "Just the conclusion, please. I don't need to see how you got there.",
    "Spare me the process and tell me the result.",
    "以后直接给结论，不用讲过程。",
)


def test_what_a_user_asks_for_in_three_sessions_is_first_in_the_fourth_context(instance: Instance) -> None:
    """Candidates are not told: after two sessions it is none yet. Nobody else is told it, whichever agent asks."""
    agent, ada, bob = (instance.name(stem) for stem in ("agent", "ada", "bob"))

    def session(user: str, words: str) -> str:
        task = instance.name("task")
        names = {"task": task, "agent": agent, "user": user, "session": f"{task}-s"}
        told = {"role": "user", "content": words}
        instance.stored(
            instance.event(f"{task}-r", "run.started", {"goal": "quarterly figures"}, **names),
            instance.event(f"{task}-r", "message.added", told, **names),
        )
        return task

    def context(user: str) -> str:
        task = session(user, "How did the quarter go?")
        body = {"task": task, "query": "How did the quarter go?"}
        return str(instance.http.post("/v1/context", json=body).json()["text"])

    for words in SAID[:2]:
        session(ada, words)
    until(lambda: [one for one in believed(instance, ada) if one["supports"] == 2])
    assert "## policy" not in context(ada)
    session(ada, SAID[2])
    (rule,) = until(lambda: [one for one in believed(instance, ada) if one["status"] == "active"])
    first = context(ada).partition("## policy\n")[2].splitlines()[:2]
    assert first == ["Rules, the user's own first:", f"- {rule['statement']}"]
    assert rule["statement"] not in context(bob)
    other = instance.name("agent")
    assert [one["standing"] for one in policy(instance, agent=other, user=ada)["rules"]] == [True]
    assert policy(instance, agent=agent)["rules"] == policy(instance, agent=agent, user=bob)["rules"] == []


def believed(instance: Instance, user: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = instance.http.get("/v1/beliefs", params={"user": user}).json()["items"]
    return found
