"""``refold policy``: what an agent is to be told of what was learned, for one context."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from services.cli.client import connected
from services.cli.errors import USAGE, CliError
from services.cli.options import AsJson, Data, Url
from services.cli.output import hint, print_fields, print_json, printable
from services.cli.read import read_note

_SAID = {
    "told": "told",
    "no_room": "it holds here, and had no room: give more --tokens",
    "trigger": "its trigger does not hold in this context",
    "tools": "it is about tools that are not at hand",
    "said_already": "another rule says the same or the opposite, or a warning about its tool takes its place",
    "candidate": "a candidate: not confident enough, failed lately, or long untouched",
    "retired": "retired: it no longer holds",
    "unknown": "these scopes know no such belief",
}
_SHOWN = (
    "scope", "statement", "trigger", "tools", "confidence", "failures_in_a_row", "last_verified", "retired_because",
)  # fmt: skip
_GIVEN = ("agent", "user", "task", "goal", "query", "mode", "tool", "tools", "tokens", "why", "after")


def register(app: typer.Typer) -> None:
    """Add the command of this group."""
    app.command("policy")(policy)


def policy(
    agent: Annotated[str | None, typer.Option(metavar="NAME", help="What this agent has learned.")] = None,
    user: Annotated[str | None, typer.Option(metavar="NAME", help="What was learned of this user.")] = None,
    task: Annotated[str | None, typer.Option(metavar="ID", help="For this task: its user, agent, goal, tools.")] = None,
    goal: Annotated[str | None, typer.Option(metavar="TEXT", help="What is to be reached.")] = None,
    query: Annotated[str | None, typer.Option(metavar="TEXT", help="What is asked now.")] = None,
    mode: Annotated[str | None, typer.Option(metavar="MODE", help="Like precise_planning.")] = None,
    tool: Annotated[str | None, typer.Option(metavar="NAME", help="The tool that is to be called next.")] = None,
    tools: Annotated[str | None, typer.Option(metavar="NAMES", help="Tools at hand, with commas between.")] = None,
    field: Annotated[
        list[str] | None, typer.Option("--field", metavar="NAME=VALUE", help="Another field of the context.")
    ] = None,
    tokens: Annotated[
        int | None, typer.Option("--max-tokens", "--tokens", metavar="N", min=1, help="Most tokens of the text.")
    ] = None,
    why: Annotated[
        str | None, typer.Option(metavar="BELIEF", help="Instead of the text: why this belief is told here, or not.")
    ] = None,
    data: Data = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Print what was learned, ready for a system prompt.

    The user's own standing preferences come first; what went wrong before stands apart. The text goes to standard
    output, what it is made of to standard error.
    """
    more = dict(_split(one) for one in field or ())
    with connected(data, url) as client:
        found = client.get(
            "/v1/policy", agent=agent, user=user, task=task, goal=goal, query=query, mode=mode, tool=tool, tools=tools,
            tokens=tokens, why=why, **more,
        )  # fmt: skip
    if as_json:
        print_json(found)
        return
    if why:
        verdict = found["why"]
        print_fields(verdict["belief"], [("verdict", _SAID.get(verdict["verdict"], verdict["verdict"]))]
                     + [(name.replace("_", " "), _short(verdict.get(name))) for name in _SHOWN])  # fmt: skip
        return
    if found["text"]:
        print(printable(found["text"]))
    told = ", ".join(_number(found[name], name) for name in ("rules", "constraints", "notices") if found[name])
    hint(f"{told or 'nothing to tell'} of {', '.join(found['scopes'])}: {found['tokens']:,} tokens")
    if note := read_note(found["read"]):
        hint(note)


def _short(value: Any) -> Any:
    return f"{value:.2f}" if isinstance(value, float) else value


def _number(found: list[Any], name: str) -> str:
    return f"{len(found)} {name if len(found) != 1 else name.removesuffix('s')}"


def _split(field: str) -> tuple[str, str]:
    name, given, value = field.partition("=")
    if not (given and name) or name in _GIVEN:
        raise CliError(f"--field {field!r:.100}: write NAME=VALUE, with a name that has no option of its own", USAGE)
    return name, value
