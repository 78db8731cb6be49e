"""``refold status``: how far everything is."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from services.cli.client import Client, connected
from services.cli.options import AsJson, Data, Url
from services.cli.output import console, duration, hint_dead_letters, print_json, print_table, say


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("status")(status)


def status(
    watch: Annotated[bool, typer.Option("--watch", help="Show it again every second until Ctrl-C.")] = False,
    data: Data = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show how far everything is: events, projections, services."""
    with connected(data, url) as client:
        while True:
            document = _status(client)
            if as_json:
                print_json(document)
            else:
                if watch:
                    console().clear()
                _print_status(document)
            if not watch:
                return
            time.sleep(1)


def _status(client: Client) -> dict[str, Any]:
    log = client.get("/v1/log")
    projections = client.get("/v1/projections")["items"]
    ready = client.request("GET", "/readyz").json()
    return {
        "url": client.url,
        "ready": ready.get("ready"),
        "events": log["events"],
        "partitions": log["partitions"],
        "has_refused": log["has_refused"],
        "projections": projections,
        "services": ready.get("services", {}),
    }


def _print_status(document: dict[str, Any]) -> None:
    ready = "ready" if document["ready"] else "not ready"
    refused = ", some refused: see `refold refused`" if document["has_refused"] else ""
    say(
        f"{document['url']}  {ready}  {document['events']:,} events in {document['partitions']} partitions{refused}",
        style="bold",
    )
    projections = document["projections"]
    rows = [
        (one["name"], one["generation"], one["lag_events"], duration(one["lag_s"]), one["dead_letters"], one["state"],
         _doing(one))
        for one in projections
    ]  # fmt: skip
    print_table(("projection", "generation", "behind#", "for#", "dead letters#", "state", "rebuild~"), rows)
    services = [
        (name, one["state"], one["restarts"], one["error"]) for name, one in sorted(document["services"].items())
    ]
    print_table(("service", "state", "restarts#", "last error~"), services, empty="no service of it is known here")
    for one in projections:
        if one.get("hint"):
            say(f"{one['name']}: {one['hint']}")
    hint_dead_letters(projections)


def _doing(projection: dict[str, Any]) -> str:
    """How far its rebuild is; empty when there is none."""
    told = projection.get("rebuild") or {}
    return f"{told['phase']} {told.get('done', 0):,}/{told.get('total', 0):,}" if told.get("phase") else ""
