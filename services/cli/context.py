"""``refold context``: what an agent is told before its next decision, the same again, and where a value was lost."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from services.cli.client import connected, segment
from services.cli.errors import USAGE, CliError
from services.cli.options import AsJson, Data, Url
from services.cli.output import hint, print_fields, print_json, printable


def register(app: typer.Typer) -> None:
    """Add the commands of this group."""
    app.command("context")(context)


def context(
    task: Annotated[str | None, typer.Option(metavar="ID", help="The task.")] = None,
    query: Annotated[str, typer.Option(metavar="TEXT", help="What is asked now.")] = "",
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", metavar="N", min=1, help="Most tokens of the whole.")
    ] = None,
    parts: Annotated[str, typer.Option(metavar="NAMES", help="Parts, with commas between; all unless told.")] = "",
    mode: Annotated[str, typer.Option(metavar="MODE", help="Like precise_planning; else the run's own.")] = "",
    focus: Annotated[str, typer.Option(metavar="WORDS", help="What is to be decided.")] = "",
    original: Annotated[
        list[str] | None, typer.Option("--original", metavar="CARD", help="A card whose original is wanted whole.")
    ] = None,
    replay: Annotated[
        str | None, typer.Option(metavar="ID@TASK", help="Instead: a recorded context once more.")
    ] = None,
    why: Annotated[str, typer.Option(metavar="VALUE", help="Instead of the text: where this value was lost.")] = "",
    data: Data = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Assemble the context of a task within a budget of tokens.

    The text goes to standard output, its id and size to standard error.
    """
    if (task is None) == (replay is None) and not (task and replay):
        raise CliError("name a task with --task, or a recorded context with --replay", USAGE)
    with connected(data, url) as client:
        if replay is not None:
            found = client.get(f"/v1/context/{segment(replay)}", task=task)
        else:
            given = {
                "task": task, "query": query, "max_tokens": max_tokens, "mode": mode, "focus": focus, "why": why,
                "parts": [name.strip() for name in parts.split(",") if name.strip()], "originals": original,
            }  # fmt: skip
            found = client.post("/v1/context", {name: value for name, value in given.items() if value})
    if as_json:
        print_json(found)
    elif why and replay is None:
        _print_why(found["why"])
    else:
        print(printable(found["text"]))
        parts_told = ", ".join(f"{part['name']} {part['tokens']}" for part in found["parts"])
        if not found.get("read", {"reached": True})["reached"]:
            hint("the read models are not as far as the log: ask again")
        nothing = "nothing fits" if max_tokens else "nothing to tell"
        hint(f"context {found['context']}: {found['tokens']:,} tokens ({parts_told or nothing})")


_SAID = {
    "told": "the context tells it",
    "never_logged": "no event of the task holds it",
    "no_card": "it was logged, but no card holds it",
    "state": "it was logged, but the task's state does not say it any more",
    "superseded": "a later card replaced those that hold it",
    "invalidated": "the cards that hold it were declared invalid",
    "expired": "the cards that hold it have expired",
    "cut_by_budget": "cards hold it; it was cut by the budget",
    "not_asked": "cards hold it, but cards were not asked for",
    "memory": "no event of the task holds it, but these memories do",
}


def _print_why(why: dict[str, Any]) -> None:
    cards = [f"{one['card']} at {one['position']}, {one['status']}" for one in why.get("cards", ())]
    events = [f"{one['type']} at {one['position']}" for one in why.get("events", ())]
    memories = [f"{one['memory']} of {one['scope']}, {one['status']}" for one in why.get("memories", ())]
    place = f"{why['rank']} of {why['of']} values" if why.get("rank") else None
    print_fields(
        why["value"],
        [("verdict", f"{why['verdict']}: {_SAID[why['verdict']]}"), ("in parts", why.get("parts")),
         ("events looked at", why.get("events_looked_at")), ("cards", cards), ("memories", memories),
         ("events", events), ("rank", place), ("budget", why.get("max_tokens")), ("used", why.get("tokens"))],
    )  # fmt: skip
