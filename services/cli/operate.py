"""``refold verify`` and ``generations``: looking after the read models; see also ``services.cli.rebuild``."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from services.cli.client import Client, connected, segment
from services.cli.errors import NO, USAGE, CliError
from services.cli.options import AsJson, Data, Url
from services.cli.output import hint_dead_letters, print_json, print_lines, print_table, readable, say
from services.cli.watching import watch_one


def register(app: typer.Typer) -> None:
    """Add the commands of this group."""
    app.command("verify")(verify)
    app.command("generations")(generations)


def _statuses(client: Client, names: list[str]) -> list[dict[str, Any]]:
    return [one for one in client.get("/v1/projections")["items"] if one["name"] in names]


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
        begun = client.post("/v1/verify", {"projections": names or None})
        path = f"/v1/verify/{segment(begun['id'])}"
        job = watch_one(client, path, "verifying", "nothing is changed by verifying, run it again at any time")
        if job["state"] != "done":
            raise CliError(f"verify {job['state']}: {job['error']}", NO)
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
        if not one["equal"]:
            say(f"to put it right: `refold rebuild {one['name']}`, or one key with --key", style="yellow")


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
    drop: Annotated[
        str | None, typer.Option("--drop", metavar="GENERATION", help="Drop this one (task_state__g1) for good.")
    ] = None,
    data: Data = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List the generations of the read models, or drop one."""
    with connected(data, url) as client:
        if drop is not None:
            if projection is not None:
                raise CliError("--drop takes the name of the generation and no other", USAGE)
            dropped = client.delete(f"/v1/generations/{segment(drop)}")
            if as_json:
                print_json(dropped)
            else:
                say(f"{dropped['name']} is dropped")
            return
        found = list(client.items("/v1/generations", projection=projection))
    if as_json:
        print_lines(found)
        return
    rows = [(one["name"], one["state"], one["version"], one["fingerprint"][:12], one["created"]) for one in found]
    print_table(("generation", "state", "version#", "fingerprint", "created"), rows)
