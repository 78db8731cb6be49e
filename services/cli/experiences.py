"""``refold experiences``: what a user or an agent has been through, the latest, or what is like something."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from services.cli.client import connected
from services.cli.options import AsJson, Data, Limit, OfAgent, OfOrg, OfUser, Url, one_scope
from services.cli.output import hint, one_line, print_entries, print_lines
from services.cli.read import second


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("experiences")(experiences)


def experiences(
    user: OfUser = None,
    agent: OfAgent = None,
    org: OfOrg = False,
    query: Annotated[str, typer.Option("--query", "-q", metavar="WORDS", help="Those like this, the best first.")] = "",
    limit: Limit = None,
    data: Data = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List what became of runs, the latest first.

    Of a user, an agent or the organisation; or those that are like something.
    """
    whose = one_scope(user, agent, org)
    with connected(data, url) as client:
        if query:
            answer = client.get("/v1/experiences/search", q=query, top_k=min(limit or 10, 200), **whose)
            found, why = answer["items"], answer["why"]
        else:
            found, why = list(client.items("/v1/experiences", limit or 20, **whose)), ""
    if as_json:
        print_lines(found)
        return
    columns = ("run", "outcome", "time", *(("relevance#",) if query else ()), "tools", "asked", "why")
    print_entries(columns, [row_of(one, query) for one in found], below=("asked", "why"), empty="no experiences yet")
    if why:
        hint(f"compared by words alone: {why}")


def row_of(one: dict[str, Any], query: str) -> tuple[Any, ...]:
    """An experience on a line."""
    sheet = one.get("sheet") or {}
    relevance = (f"{one['relevance']:.2f}",) if query else ()
    used = sheet.get("tools")  # sheets of other makers have any form
    tools = ", ".join(map(str, used)) if used and isinstance(used, list) else one.get("path", "")
    outcome = sheet.get("outcome") or one.get("path_label", "")
    said = (one_line(sheet.get("input_summary", "")), one_line(sheet.get("cause", "")))
    return (one["run"], outcome, second(one.get("time")), *relevance, tools, *said)
