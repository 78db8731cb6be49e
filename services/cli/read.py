"""``refold runs``, ``events``, ``task``, ``resume``, ``cards``, ``settlements``, ``beliefs``: reading."""

from __future__ import annotations

from typing import Annotated

import typer

from services.cli.client import connected, segment
from services.cli.options import AsJson, Data, Limit, Url
from services.cli.output import one_line, print_lines, print_table

Run = Annotated[str, typer.Option("--run", metavar="ID", help="The run.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this group."""
    app.command("runs")(runs)
    app.command("events")(events)


def runs(
    task: Annotated[str | None, typer.Option(help="Of this task alone.")] = None,
    limit: Limit = 50,
    data: Data = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List runs, the newest first."""
    with connected(data, url) as client:
        found = list(client.items("/v1/runs", limit, task=task, order="desc"))
    if as_json:
        print_lines(found)
        return
    rows = [(one["run"], one["attempt"], one["agent"], one["started"][:19], one_line(one["goal"], 60)) for one in found]
    print_table(("run", "attempt#", "agent", "started", "goal"), rows, empty="no runs yet")


def events(run: Run, limit: Limit = None, data: Data = None, url: Url = None, as_json: AsJson = False) -> None:
    """List the events of a run, in log order, with their verdicts."""
    with connected(data, url) as client:
        found = client.items(f"/v1/runs/{segment(run)}/events", limit)
        if as_json:
            print_lines(found)
            return
        rows = [
            (one.get("seq"), one["time"][11:23], one["type"], one_line(one["data"], 200), _verdict(one))
            for one in found
        ]
    print_table(("seq#", "time", "type", "data~", ""), rows)


def _verdict(event: dict[str, str]) -> str:
    return "" if event["verdict"] == "effective" else event["verdict"]
