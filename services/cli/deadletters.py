"""``refold deadletters``: what no fold could take, and ``refold refused``: what the door did not let in."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from services.cli.client import connected, segment
from services.cli.errors import NO
from services.cli.options import AsJson, Data, Limit, Url
from services.cli.output import one_line, print_fields, print_json, print_lines, print_table, printable, say

DeadLetter = Annotated[str, typer.Argument(metavar="ID", help="As `refold deadletters list` shows it.")]
Projection = Annotated[str | None, typer.Option("--projection", help="Of this projection alone.")]


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
    projection: Projection = None, limit: Limit = None, data: Data = None, url: Url = None, as_json: AsJson = False
) -> None:
    """List dead letters. The first of a key is the cause, later ones wait for it."""
    with connected(data, url) as client:
        found = list(client.items("/v1/deadletters", limit, projection=projection))
    if as_json:
        print_lines(found)
        return
    rows = [(one["id"], one["projection"], one["key"], one["type"], one_line(one["error"])) for one in found]
    print_table(("id", "projection", "key", "type", "error~"), rows, empty="no dead letters")


def show(dead_letter: DeadLetter, data: Data = None, url: Url = None, as_json: AsJson = False) -> None:
    """Show one dead letter with its event and traceback."""
    with connected(data, url) as client:
        found = client.get(f"/v1/deadletters/{segment(dead_letter)}")
    if as_json:
        print_json(found)
        return
    print_fields(f"dead letter {found['id']}", [(name, value) for name, value in found.items() if name != "traceback"])
    print(printable(found.get("traceback") or ""))


def retry(dead_letter: DeadLetter, data: Data = None, url: Url = None, as_json: AsJson = False) -> None:
    """Fold a dead letter's key again from this event on. Exit code 1 when it fails again."""
    _act("retry", dead_letter, {}, data, url, as_json)


def discard(
    dead_letter: DeadLetter,
    reason: Annotated[str, typer.Option(help="Why; it is recorded.")] = "",
    data: Data = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Leave the event out on purpose. This is recorded as an event, so a rebuild leaves it out too."""
    _act("discard", dead_letter, {"reason": reason}, data, url, as_json)


def _act(what: str, dead_letter: str, body: dict[str, Any], data: Any, url: str | None, as_json: bool) -> None:
    with connected(data, url) as client:
        answer = client.post(f"/v1/deadletters/{segment(dead_letter)}/{what}", body)
    if as_json:
        print_json(answer)
    else:
        say(f"{dead_letter}: {answer['state']}")
    if answer["state"] == "failed":
        raise typer.Exit(NO)


def refused(limit: Limit = 50, data: Data = None, url: Url = None, as_json: AsJson = False) -> None:
    """List events that were refused or conflicted, and why.

    The newest come first.
    """
    with connected(data, url) as client:
        found = list(client.items("/v1/refused", limit))
    if as_json:
        print_lines(found)
        return
    rows = [(one["received"][:19], one["event_type"], one["event_id"], one["code"], one["reason"]) for one in found]
    print_table(("received", "type", "event", "code", "why~"), rows, empty="nothing was refused")
