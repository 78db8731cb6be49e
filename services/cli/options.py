"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from services.cli.errors import USAGE, CliError

Data = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="Data folder of the instance (REFOLD_DATA; default .refold)."),
]
Url = Annotated[str | None, typer.Option("--url", metavar="URL", help="Address of the instance (REFOLD_URL).")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on standard output.")]
Limit = Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="At most so many.")]

OfUser = Annotated[str | None, typer.Option("--user", metavar="NAME", help="Of this user.")]
OfAgent = Annotated[str | None, typer.Option("--agent", metavar="NAME", help="Of this agent.")]
OfOrg = Annotated[bool, typer.Option("--org", help="Of the organisation.")]


def one_scope(user: str | None, agent: str | None, org: bool) -> dict[str, str | None]:
    """The names of a scope, as the API takes them; the organisation's has none. Raises CliError for two scopes."""
    if sum((bool(user), bool(agent), org)) > 1:
        raise CliError("give one of --agent, --user and --org: each has its own", USAGE)
    return {"user": user, "agent": agent}
