"""``refold status``, ``rebuild``, ``verify`` and ``generations``: looking after the read models."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from services.cli.client import Client, connected, segment
from services.cli.errors import NO, USAGE, CliError
from services.cli.options import AsJson, Data, Url
from services.cli.output import (
    console,
    duration,
    one_line,
    print_json,
    print_lines,
    print_table,
    progress,
)

POLL_S = 0.2


def register(app: typer.Typer) -> None:
    """Add the commands of this group."""
    app.command("status")(status)
    app.command("rebuild")(rebuild)
    app.command("verify")(verify)
    app.command("generations")(generations)


def status(
    watch: Annotated[bool, typer.Option("--watch", help="Show it again every second until Ctrl-C.")] = False,
    data: Data = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show how many events there are and how far every projection is."""
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
    console().print(
        f"[bold]{document['url']}[/bold]  {ready}  {document['events']:,} events in "
        f"{document['partitions']} partitions{refused}"
    )
    rows = [
        (one["name"], one["generation"], one["lag_events"], duration(one["lag_s"]), one["dead_letters"], one["state"])
        for one in document["projections"]
    ]
    print_table(("projection", "generation", "behind#", "for#", "dead letters#", "state"), rows)
    for one in document["projections"]:
        if one.get("hint"):
            console().print(f"{one['name']}: {one['hint']}", markup=False)
    troubled = {name: one for name, one in document["services"].items() if one.get("error")}
    for name, one in troubled.items():
        console().print(f"[yellow]{name}[/yellow] {one['state']} ({one['restarts']} restarts): ", end="")
        console().print(one_line(one["error"]), markup=False)


def rebuild(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="The projection.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every projection, one after the other.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Compare with a second refold before the swap.")] = False,
    data: Data = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Refold a projection from the start of the log, beside the one that is read, and swap. Joins a running one."""
    if (name is None) != every:
        raise CliError("name one projection, or say --all", USAGE)
    done = []
    with connected(data, url) as client:
        names = [one["name"] for one in client.get("/v1/projections")["items"]] if name is None else [name]
        for one in names:
            done.append(_rebuild(client, one, check))
            if as_json:
                print_json(done[-1])
            else:
                _print_rebuilt(done[-1])
    if any(one["state"] == "failed" for one in done):
        raise typer.Exit(NO)


def _print_rebuilt(job: dict[str, Any]) -> None:
    name, out = job["projection"], console()
    if job["state"] == "failed":
        out.print(f"[red]{name}[/red] failed: ", end="")
        out.print(one_line(job["error"], 600), markup=False)
        return
    out.print(
        f"[green]{name}[/green] refolded: {job['events']:,} events in {duration(job['seconds'])} "
        f"({job['events_per_s']:,} events/s); reads now use generation {job['generation']}"
    )


def _rebuild(client: Client, name: str, check: bool) -> dict[str, Any]:
    path = f"/v1/projections/{segment(name)}/rebuild"
    client.post(path, check=check or None)
    with _bar(f"refolding {name}") as update:
        while True:
            job: dict[str, Any] = client.get(path)
            update(job)
            if job["state"] != "running":
                return job
            time.sleep(POLL_S)


@contextmanager
def _bar(description: str) -> Iterator[Any]:
    """A progress bar over jobs that tell ``phase``, ``events``, ``total`` and ``events_per_s``."""
    with progress("events") as bar:
        task = bar.add_task(description, total=None, rate="-")

        def update(job: dict[str, Any]) -> None:
            rate = job.get("events_per_s")
            bar.update(
                task,
                completed=job.get("events") or 0,
                total=job.get("total") or None,
                rate=f"{rate:,.0f}" if rate else "-",
                description=f"{description} ({job['phase']})" if job.get("phase") else description,
            )

        yield update


def verify(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Projections; default all.")] = None,
    data: Data = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Refold into a scratch generation and compare checksums with what is live. Exit code 1 when unequal."""
    with connected(data, url) as client:
        job = client.post("/v1/verify", {"projections": names or []})
        path = f"/v1/verify/{segment(job['id'])}"
        with _bar("verifying") as update:
            while job["state"] == "running":
                time.sleep(POLL_S)
                job = client.get(path)
                update(job)
    if job["state"] == "failed":
        raise CliError(f"verify could not be done: {job['error']}", NO)
    result = job["result"]
    if as_json:
        print_json(result)
    else:
        _print_verified(result)
    if not result["equal"]:
        raise typer.Exit(NO)


def _print_verified(result: dict[str, Any]) -> None:
    rows = [
        (one["name"], one["generation"], str(one["checksum"])[:16], "equal" if one["equal"] else "UNEQUAL")
        for one in result["projections"]
    ]
    print_table(("projection", "generation", "checksum", "live and refolded"), rows)
    for one in result["projections"]:
        for difference in one["first_differences"]:
            console().print(f"  {one['name']}: {one_line(difference, 400)}", markup=False)


def generations(
    projection: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Of this projection alone.")] = None,
    data: Data = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List the generations of the read models."""
    with connected(data, url) as client:
        found = list(client.items("/v1/generations", projection=projection))
    if as_json:
        print_lines(found)
        return
    rows = [(one["name"], one["state"], one["version"], one["fingerprint"][:12], one["created"]) for one in found]
    print_table(("generation", "state", "version#", "fingerprint", "created"), rows)
