"""``refold search``: cards by what they say."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from services.cli.client import Client, connected
from services.cli.errors import USAGE, CliError
from services.cli.options import AsJson, Data, Url
from services.cli.output import hint, print_entries, print_lines
from services.cli.read import read_note

MOST = 200
"""Cards that one request may ask for."""


def register(app: typer.Typer) -> None:
    """Add the commands of this group."""
    app.command("search")(search)


def search(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Words in any language, ids, dates.")] = "",
    task: Annotated[str, typer.Option(metavar="ID", help="Cards of this task alone.")] = "",
    user: Annotated[str, typer.Option(metavar="NAME", help="Cards of this user alone.")] = "",
    agent: Annotated[str, typer.Option(metavar="NAME", help="Cards of this agent alone.")] = "",
    session: Annotated[str, typer.Option(metavar="ID", help="Cards of this session alone.")] = "",
    filter_: Annotated[str, typer.Option("--filter", metavar="JSON", help='Like \'{"value": {"gte": 3}}\'.')] = "",
    status: Annotated[str, typer.Option(metavar="STATUS", help="Of this status; any for all.")] = "active",
    as_of: Annotated[str, typer.Option("--as-of", metavar="TIME", help="As it stood at this moment.")] = "",
    focus: Annotated[str, typer.Option(metavar="ID|WORDS", help="The decision that this is for.")] = "",
    top_k: Annotated[int, typer.Option("--limit", "--top-k", metavar="N", min=1, help="At most so many.")] = 10,
    threshold: Annotated[float, typer.Option(metavar="SHARE", min=0, max=1, help="The least relevance.")] = 0.0,
    max_tokens: Annotated[int | None, typer.Option(metavar="N", min=1, help="Most tokens of the summaries.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show what each signal adds to the score.")] = False,
    data: Data = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Find memory cards by what they say, the best first.

    Without QUERY, the most valuable and recent ones.
    """
    body: dict[str, Any] = {
        "query": query, "task": task, "user": user, "agent": agent, "session": session, "status": status,
        "as_of": as_of, "focus": focus, "threshold": threshold, "max_tokens": max_tokens, "explain": explain,
        "filter": _filter(filter_),
    }  # fmt: skip
    with connected(data, url) as client:
        found = _found(client, body, top_k)
    if as_json:
        print_lines(found["items"])
        return
    _print_found(found["items"], explain)
    if query and not found["embedding"]["model"] and found["items"]:
        hint(f"by words alone: {found['embedding']['why_not']}")
    if note := read_note(found["read"]):
        hint(note)
    if found["total"] > len(found["items"]):
        more = "--max-tokens" if max_tokens and len(found["items"]) < top_k else "--top-k"
        hint(f"{len(found['items'])} of {found['total']} that fit; a greater `{more}` shows more")


def _found(client: Client, body: dict[str, Any], top_k: int) -> dict[str, Any]:
    """The answer to a search, with the cards of all pages up to ``top_k``; with a bound of tokens, of one page."""
    path = "/v1/cards/search"
    found: dict[str, Any] = client.post(path, {**body, "top_k": min(top_k, MOST)})
    page = found
    while page["next_cursor"] and len(found["items"]) < top_k and not body["max_tokens"]:
        left = min(top_k - len(found["items"]), MOST)
        page = client.post(path, {**body, "top_k": left, "cursor": page["next_cursor"]})
        found["items"] += page["items"]
    return found


def _print_found(items: list[dict[str, Any]], explain: bool) -> None:
    columns = ["score#", "from", "as of", "card", "summary"]
    rows = [
        [f"{one['score']:.3f}", one.get("tool") or one["source"], one.get("as_of", "")[:19], one["card"], _said(one)]
        for one in items
    ]
    if explain:
        columns.insert(1, "why")
        for row, one in zip(rows, items, strict=True):
            row.insert(1, _why(one["signals"]))
    print_entries(columns, rows, below=("why", "summary") if explain else ("summary",), empty="no card fits")


def _said(card: dict[str, Any]) -> str:
    return str(card.get("model_summary") or card.get("summary") or "")


def _why(signals: dict[str, float]) -> str:
    """The signals that count, the strongest first."""
    strong = sorted(signals.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{name} {share:.2f}" for name, share in strong if share >= 0.005)


def _filter(text: str) -> dict[str, Any]:
    if not text:
        return {}
    try:
        tree = json.loads(text)
    except ValueError as error:
        raise CliError(f"--filter is no JSON: {error}", USAGE) from error
    if not isinstance(tree, dict):
        raise CliError('--filter is a JSON object, like \'{"tool": "search"}\'', USAGE)
    return tree
