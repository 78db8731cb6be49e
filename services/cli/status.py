"""``refold status``: how far everything is, once or as a live view."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from services.cli.client import Client, connected
from services.cli.errors import CliError
from services.cli.options import AsJson, Data, Url
from services.cli.output import duration, hint_dead_letters, piped, print_json, print_table, say

PERIOD_S = 1.0


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("status")(status)


def status(
    watch: Annotated[bool, typer.Option("--watch", help="Go on showing it until Ctrl-C.")] = False,
    partitions: Annotated[bool, typer.Option("--partitions", help="With each partition, and who folds it.")] = False,
    data: Data = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show how far everything is, and what stands still.

    A projection is live, behind (it gets on), paused or stuck (it does not; why is said), unowned (no worker folds it),
    stale (other code made it), rebuilding, abandoned or missing.
    """
    with connected(data, url) as client:
        document = read_status(client, partitions=partitions)
        if watch:
            _watch(client, document, partitions, as_json)
        elif as_json:
            print_json(document)
        else:
            print_status(document)


def read_status(client: Client, *, partitions: bool = False) -> dict[str, Any]:
    """Everything that is shown, as one document."""
    log = client.get("/v1/log")
    projections = client.get("/v1/projections", detail=partitions or None)["items"]
    ready = client.request("GET", "/readyz").json()
    return {
        "url": client.url,
        "ready": ready.get("ready"),
        "events": log["events"],
        "partitions": log["partitions"],
        "not_archived": log["lag_events"],
        "has_refused": log["has_refused"],
        "unknown_types": log["unknown_types"],
        "projections": projections,
        "reactors": client.get("/v1/reactors")["items"],
        "embeddings": client.get("/v1/embeddings")["items"],
        "services": ready.get("services", {}),
    }


def _watch(client: Client, document: dict[str, Any], partitions: bool, as_json: bool) -> None:
    """Show it every second: a view that stays in its place, or a JSON line, or tables. Ctrl-C ends it, as is expected.

    An instance that is away is waited for.
    """
    from services.cli.watch import live_view

    def again() -> dict[str, Any]:
        time.sleep(PERIOD_S)
        try:
            return read_status(client, partitions=partitions)
        except CliError as error:
            return {"url": client.url, "error": str(error)}

    try:
        if not as_json and not piped():
            live_view(document, again)
        while True:
            if as_json:
                print_json(document)
            elif "error" in document:
                say(document["error"])
            else:
                print_status(document)
                sys.stdout.flush()
            document = again()
    except KeyboardInterrupt:
        return


def headline(document: dict[str, Any]) -> str:
    """The instance and its log in a line."""
    told = f"{document['url']}  {'ready' if document['ready'] else 'not ready'}  "
    told += f"{document['events']:,} events in {document['partitions']} partitions"
    if document["not_archived"]:
        told += f", {document['not_archived']:,} more not archived yet"
    return told


def notes(document: dict[str, Any]) -> list[str]:
    """What a reader should look at, a line each."""
    found = []
    if document["not_archived"] is None:
        found.append("what Redis holds beyond the archive is not known: it does not answer, or waits for recovery")
    if document["has_refused"]:
        found.append("some events were refused: see `refold refused`")
    if count := document["unknown_types"]:
        found.append(f"events of {count} unknown type{'' if count == 1 else 's'}: see `refold events --unknown`")
    found += [f"{one['name']}: {one['hint']}" for one in document["projections"] if one.get("hint")]
    found += [
        f"embedding model {one['model']} is being made ready ({one['waiting']:,} cards to look at): "
        "until then searches use the one before"
        for one in document.get("embeddings", ())
        if one["state"] == "building" and one["waiting"] is not None
    ]
    found += [
        f"reactor {one['name']}: no worker runs it over {one['unowned']} of its partitions"
        for one in document["reactors"]
        if one["unowned"]
    ]
    return found


def print_status(document: dict[str, Any]) -> None:
    """For people, or as rows for programs."""
    say(headline(document), style="bold")
    projections = document["projections"]
    rows = [
        (one["name"], one["generation"], one["lag_events"], duration(one["lag_s"]), pace(one), left(one),
         one["workers"], one["dead_letters"], one["state"], rebuilt(one))
        for one in projections
    ]  # fmt: skip
    columns = ("projection", "gen#", "behind#", "for#", "events/s#", "left#", "workers#", "dead#", "state", "rebuild#")
    print_table(columns, rows)
    if any(one.get("partitions") for one in projections):
        _print_partitions(projections)
    reactors = [
        (one["name"], one["lag_events"], duration(one["lag_s"]), one["workers"]) for one in document["reactors"]
    ]
    print_table(("reactor", "behind#", "for#", "workers#"), reactors)
    _print_embeddings(document.get("embeddings", []))
    services = [
        (name, one["state"], one["restarts"], one["error"]) for name, one in sorted(document["services"].items())
    ]
    print_table(("service", "state", "restarts#", "last error~"), services, empty="no service of it is known here")
    for one in projections:
        if told := doing(one):
            say(f"{one['name']}: {told}", style="cyan")
    for note in notes(document):
        say(note)
    hint_dead_letters(projections)


def _print_embeddings(models: Sequence[dict[str, Any]]) -> None:
    rows = [(one["model"], one["state"], one["dimension"], one["vectors"], one["waiting"]) for one in models]
    if rows:
        print_table(("embedding model", "state", "dimension#", "vectors#", "cards to look at#"), rows)


def _print_partitions(projections: Sequence[dict[str, Any]]) -> None:
    rows = [
        (one["name"], each["partition"], each["position"], each["lag_events"], duration(each["lag_s"]), pace(each),
         left(each), each["state"], each["worker"], each["reason"])
        for one in projections
        for each in one["partitions"]
    ]  # fmt: skip
    columns = ("projection", "p#", "position#", "behind#", "for#", "events/s#", "left#", "state", "worker~", "reason~")
    print_table(columns, rows)


def pace(one: dict[str, Any]) -> str:
    """Events a second, lately; empty while there is nothing to do."""
    return f"{one['events_per_s']:,.0f}" if one["events_per_s"] >= 1 else ""


def left(one: dict[str, Any]) -> str:
    """How long the rest takes at this pace; empty when it is done or cannot be told."""
    return duration(one["eta_s"]) if one["eta_s"] else ""


def rebuilt(projection: dict[str, Any]) -> str:
    """The share of its rebuild that is done; empty when there is none."""
    told = projection.get("rebuild") or {}
    return f"{told.get('done', 0) / told['total']:.0%}" if told.get("total") else ""


def doing(projection: dict[str, Any]) -> str:
    """How far its rebuild is; empty when there is none."""
    told = projection.get("rebuild") or {}
    if not told.get("phase"):
        return ""
    eta = f", {duration(told['eta_s'])} left" if told.get("eta_s") else ""
    return f"{told['phase']} {told.get('done', 0):,}/{told.get('total', 0):,}{eta}"
