"""``refold deadletters``: what no fold could take, and ``refold refused``: what the door did not let in."""

from __future__ import annotations

import time
from collections.abc import Mapping
from textwrap import wrap
from typing import Annotated, Any

import typer

from services.cli.client import connected, segment
from services.cli.errors import NO, USAGE, CliError
from services.cli.options import AsJson, Data, Limit, Url
from services.cli.output import one_line, piped, print_fields, print_json, print_lines, print_table, printable, say

DeadLetter = Annotated[str, typer.Argument(metavar="ID", help="As `refold deadletters list` shows it.")]
POLL_S = 0.5
_WHY = 44
"""Characters in a line of a reason, in the table that a person reads."""

Key = Annotated[str | None, typer.Option("--key", metavar="KEY", help="Of this partition key alone, `task/t1` say.")]
Projection = Annotated[str | None, typer.Option("--projection", metavar="NAME", help="Of this projection alone.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this group."""
    group = typer.Typer(help="Events that no fold could take: list, show, retry, discard.", no_args_is_help=True)
    group.command("list")(list_)
    group.command("show")(show)
    group.command("retry")(retry)
    group.command("discard")(discard)
    app.add_typer(group, name="deadletters")
    app.command("refused")(refused)


def list_(
    projection: Projection = None,
    key: Key = None,
    type: Annotated[str | None, typer.Option("--type", metavar="TYPE", help="Of this event type alone.")] = None,
    cause: Annotated[
        str | None,
        typer.Option(
            "--cause", metavar="CAUSE", help="poison, newer_version, killed, unwritable, machine or waiting alone."
        ),
    ] = None,
    causes: Annotated[bool, typer.Option("--causes", help="Leave out those that only wait.")] = False,
    limit: Limit = None,
    data: Data = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List dead letters. The first of a key is the cause, later ones wait for it."""
    chosen = {"projection": projection, "key": key, "type": type, "cause": cause, "waiting": False if causes else None}
    with connected(data, url) as client:
        found = list(client.items("/v1/deadletters", limit, **chosen))
    if as_json:
        print_lines(found)
        return
    rows = [(one["id"], one["key"], one["type"], one["cause"], one_line(one["error"])) for one in found]
    print_table(("id", "key", "type", "cause", "error~"), rows, empty="no dead letters")


def show(dead_letter: DeadLetter, data: Data = None, url: Url = None, as_json: AsJson = False) -> None:
    """Show one dead letter with its event and traceback."""
    with connected(data, url) as client:
        found = client.get(f"/v1/deadletters/{segment(dead_letter)}")
    if as_json:
        print_json(found)
        return
    print_fields(f"dead letter {found['id']}", [(name, value) for name, value in found.items() if name != "traceback"])
    print(printable(found.get("traceback") or ""))


def retry(
    dead_letter: Annotated[str | None, typer.Argument(metavar="[ID]", help="The key of this one.")] = None,
    projection: Projection = None,
    key: Key = None,
    data: Data = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Fold dead letters again, in order: those of ID's key, or all of --projection, or of its --key.

    Exit code 1 when some are left. Without ID, keys on which processes died are left out: name one of those by its ID.
    """
    if (dead_letter is None) == (projection is None) or (key is not None and projection is None):
        raise CliError("name a dead letter by its ID, or with --projection (and --key) which to fold again", USAGE)
    with connected(data, url) as client:
        if dead_letter is not None:
            answer = client.post(f"/v1/deadletters/{segment(dead_letter)}/retry")
        else:
            answer = client.post("/v1/deadletters/retry", projection=projection, key=key)
        while answer["state"] == "running":
            time.sleep(POLL_S)
            answer = client.get(f"/v1/deadletters/retries/{answer['job']}")
    if as_json:
        print_json(answer)
    else:
        _print_retried(answer)
    if answer["state"] == "failed":
        raise typer.Exit(NO)


def _print_retried(answer: Mapping[str, Any]) -> None:
    say(f"{answer['folded']:,} events folded, {answer['letters_left']:,} dead letters left")
    for one in answer["left"]:
        if one["cause"] != "waiting":
            say(f"{one['id']}: {one_line(one['error'])}")


def discard(
    dead_letter: DeadLetter,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; it is recorded.")] = "",
    by: Annotated[str, typer.Option(metavar="TEXT", help="Who; it is recorded.")] = "",
    data: Data = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Leave the event out on purpose. This is recorded as an event, so a rebuild leaves it out too."""
    with connected(data, url) as client:
        answer = client.post(f"/v1/deadletters/{segment(dead_letter)}/discard", {"reason": reason, "by": by})
    if as_json:
        print_json(answer)
    else:
        say(f"{dead_letter}: {answer['state']}")


def refused(limit: Limit = 50, data: Data = None, url: Url = None, as_json: AsJson = False) -> None:
    """List events that were refused or conflicted, and why.

    The newest come first.
    """
    with connected(data, url) as client:
        found = list(client.items("/v1/refused", limit))
    if as_json:
        print_lines(found)
        return
    if piped():
        rows = [(one["received"][:19], one["event_type"], one["event_id"], one["code"], one["reason"]) for one in found]
        print_table(("received", "type", "event", "code", "why"), rows)
        return
    # for a person the reason counts: all of it, beside what is short
    shown = [(one["received"][:19], one["event_type"], one["code"], wrap(one["reason"], _WHY)) for one in found]
    print_table(("received", "type", "code", "why"), shown, empty="nothing was refused")
