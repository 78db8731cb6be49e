"""``refold rebuild``, ``verify`` and ``generations``: looking after the read models."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from services.cli.client import Client, connected, segment
from services.cli.errors import INTERRUPTED, NO, USAGE, CliError
from services.cli.options import AsJson, Data, Url
from services.cli.output import (
    duration,
    hint_dead_letters,
    one_line,
    print_json,
    print_lines,
    print_table,
    progress,
    readable,
    say,
)

POLL_S = 0.2


def register(app: typer.Typer) -> None:
    """Add the commands of this group."""
    app.command("rebuild")(rebuild)
    app.command("verify")(verify)
    app.command("generations")(generations)


def _statuses(client: Client, names: list[str]) -> list[dict[str, Any]]:
    return [one for one in client.get("/v1/projections")["items"] if one["name"] in names]


def rebuild(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="The projection.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every projection, one after the other.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Compare with a second refold before the swap.")] = False,
    data: Data = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Refold a projection from the log, and swap.

    It is built beside the one that is read, from the start of the log. A rebuild that runs already is joined.
    """
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
        if not as_json:
            hint_dead_letters(_statuses(client, names))
    if any(one["state"] != "done" for one in done):
        raise typer.Exit(NO)


def _print_rebuilt(job: dict[str, Any]) -> None:
    name = job["projection"]
    if job["state"] != "done":
        say(f"{name} {job['state']}: {one_line(job['error'])}", style="red")
        return
    say(
        f"{name} refolded: {job['events']:,} events in {duration(job['seconds'])} "
        f"({job['events_per_s']:,} events/s); reads now use generation {job['generation']}"
    )
    if job["note"]:
        say(f"{name} is not checked: {job['note']}", style="yellow")


def _rebuild(client: Client, name: str, check: bool) -> dict[str, Any]:
    path = f"/v1/projections/{segment(name)}/rebuild"
    joined = client.post(path, check=check or None)
    then = f"the instance goes on by itself, and `refold rebuild {name}` joins it"
    job = _watch(client, path, client.get(path), f"refolding {name}", then)
    return job | {"note": joined.get("note") or job.get("note", "")}


def _watch(client: Client, path: str, job: dict[str, Any], description: str, then: str) -> dict[str, Any]:
    """Show a job's progress until it is over; the job. Ctrl-C is answered with how far it was, and ``then``."""
    try:
        with _bar(description) as update:
            while job["state"] == "running":
                update(job)
                time.sleep(POLL_S)
                job = client.get(path)
    except KeyboardInterrupt as interrupt:
        far = f"after {job['events']:,} of {job['total']:,} events" if job["total"] else "before the first event"
        raise CliError(f"interrupted {far}: {then}", INTERRUPTED) from interrupt
    return job


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
    """Refold into scratch tables and compare with what is live.

    Exit code 1 when a checksum differs; the first differing rows are shown.
    """
    with connected(data, url) as client:
        job = client.post("/v1/verify", {"projections": names or []})
        then = "nothing is changed by verifying: the instance ends it by itself, and it can be run again at any time"
        job = _watch(client, f"/v1/verify/{segment(job['id'])}", job, "verifying", then)
        if job["state"] == "failed":
            raise CliError(f"verify could not be done: {job['error']}", NO)
        result = job["result"]
        if as_json:
            print_json(result)
        else:
            _print_verified(result)
            hint_dead_letters(_statuses(client, [one["name"] for one in result["projections"]]))
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
            _print_difference(one["name"], difference)


def _print_difference(name: str, difference: dict[str, Any]) -> None:
    """One row that differs: only its columns that do; a row that one side lacks, as such."""
    live, refolded = difference["live"], difference["refolded"]
    say(f"{name}, {difference['table']}, row {' / '.join(str(part) for part in difference['key'])}", style="bold")
    if live is None or refolded is None:
        say(f"  only {'refolded' if live is None else 'live'}: {readable(refolded if live is None else live)}")
        return
    unequal = [column for column in live if live[column] != refolded.get(column)]
    for column in unequal:
        say(f"  {column}: live {_value(live[column])}, refolded {_value(refolded.get(column))}")


def _value(value: Any) -> str:
    """Exactly what stands there: 1 and "1" differ."""
    return json.dumps(value, ensure_ascii=False)


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
