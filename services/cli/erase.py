"""``refold erase``: all that a subject has said, and what came of it, gone from everywhere; ``refold erasures``."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from services.cli.client import Client, connected, segment
from services.cli.errors import INTERRUPTED, NO, USAGE, CliError
from services.cli.options import AsJson, Data, Limit, Url
from services.cli.output import print_fields, print_json, print_lines, print_table, say

POLL_S = 0.3
WAIT_S = 300.0


def register(app: typer.Typer) -> None:
    """Add the commands of this group."""
    app.command("erase")(erase)
    app.command("erasures")(erasures)


def erase(
    user: Annotated[str | None, typer.Option("--user", metavar="U", help="A user, and every run for them.")] = None,
    agent: Annotated[str | None, typer.Option("--agent", metavar="A", help="An agent, and its runs.")] = None,
    session: Annotated[str | None, typer.Option("--session", metavar="S", help="A session, and its runs.")] = None,
    task: Annotated[str | None, typer.Option("--task", metavar="T", help="A task, and its runs.")] = None,
    run: Annotated[str | None, typer.Option("--run", metavar="R", help="A run.")] = None,
    everything: Annotated[
        str | None, typer.Option("--org", metavar="O", help="All of the organisation that REFOLD_ORG names.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it. Without it, what would go is counted.")] = False,
    by: Annotated[str, typer.Option(metavar="TEXT", help="Who asks; it is recorded.")] = "",
    id: Annotated[str, typer.Option("--id", metavar="ID", help="Complete this erasure, begun before.")] = "",
    timeout: Annotated[float, typer.Option(min=0, metavar="S", help="Wait so long until it is done.")] = WAIT_S,
    data: Data = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Erase all that a subject has said, and what came of it.

    It cannot be taken back. Exit code 1 while something of it may still be somewhere: see `refold erasures ID`.
    """
    named = {"user": user, "agent": agent, "session": session, "task": task, "run": run, "org": everything}
    chosen = [(level, name) for level, name in named.items() if name is not None]
    if len(chosen) != 1:
        raise CliError("name exactly one of --user, --agent, --session, --task, --run, --org", USAGE)
    body = {"level": chosen[0][0], "subject": chosen[0][1], "by": by, "id": id}
    with connected(data, url) as client:
        if not yes:
            _print_count(client.post("/v1/erasures", body, dry_run=True), as_json)
            return
        found = _wait(client, client.post("/v1/erasures", body), timeout)
    _print(found, as_json)


def erasures(
    id: Annotated[str | None, typer.Argument(metavar="[ID]", help="How far this one is.")] = None,
    limit: Limit = None,
    data: Data = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List what was erased, when and by whom.

    The newest comes first. With ID, how far that erasure is, with exit code 1 until it is done.
    """
    with connected(data, url) as client:
        if id is not None:
            _print(client.get(f"/v1/erasures/{segment(id)}"), as_json)
            return
        found = list(client.items("/v1/erasures", limit))
    if as_json:
        print_lines(found)
        return
    rows = [(one["received"][:19], one["id"], one["level"], one["subject"], one["by"], one["events"], one["state"])
            for one in found]  # fmt: skip
    print_table(("when", "id", "level", "subject", "by", "events", "state"), rows, empty="nothing was erased")


def _wait(client: Client, found: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    """The erasure once it is done, or as far as it is in time."""
    path, ends, said = f"/v1/erasures/{segment(found['id'])}", time.monotonic() + timeout_s, ""
    try:
        while found["state"] != "done" and time.monotonic() < ends:
            if (waits := ", ".join(found["waits_for"][:3])) != said and waits:
                said = waits
                typer.echo(f"waits for {waits}", err=True)
            time.sleep(POLL_S)
            found = client.get(path)
    except KeyboardInterrupt as interrupt:
        raise CliError(f"it goes on by itself: see `refold erasures {found['id']}`", INTERRUPTED) from interrupt
    return found


def _print_count(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    subject = f"{found['level']} {found['subject']}"
    if not found["events"]:
        say(f"{subject}: nothing is kept that could be erased")
        return
    say(f"{subject}: {_number(found['events'], 'event')} of {_number(found['runs'], 'run')} would be erased")
    print_table(("type", "events#"), list(found["types"].items()))
    say("Nothing was changed. With --yes they are erased, and nobody can bring them back.")


def _number(count: int, of: str) -> str:
    return f"{count:,} {of}{'' if count == 1 else 's'}"


def _print(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(found)
    else:
        shown = ("level", "subject", "by", "received", "events", "state", "finished")
        print_fields(f"erasure {found['id']}", [(name, found[name]) for name in shown if found[name] not in ("", None)])
        for place in found["waits_for"]:
            say(f"waits for {place}")
    if found["state"] != "done":
        raise typer.Exit(NO)
