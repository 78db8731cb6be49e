"""``refold settle``: settling an ended run again."""

from __future__ import annotations

from typing import Annotated

import typer

from services.cli.client import connected, segment
from services.cli.options import AsJson, Data, Url
from services.cli.output import print_json


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("settle")(settle)


def settle(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run, which has ended.")],
    by: Annotated[str, typer.Option(metavar="NAME", help="Who asks for it.")] = "",
    detail: Annotated[str, typer.Option(metavar="TEXT", help="Why.")] = "",
    wait: Annotated[float, typer.Option(metavar="SECONDS", help="How long to wait for the new settlement.")] = 30.0,
    data: Data = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Settle an ended run again.

    The new settlement is a new version; the former ones are kept. What was wrong is put right first: a route for the
    run's model, say, or the model itself.
    """
    with connected(data, url) as client:
        asked = client.post(f"/v1/runs/{segment(run)}/settle", by=by, detail=detail)
        version = asked["version"]
        found = client.get(f"/v1/runs/{segment(run)}/settlement", version=version, wait_s=wait)
    if as_json:
        print_json(found)
        return
    kind = f"by evidence only ({found['degraded_reason']})" if found["degraded"] else f"by {found.get('model') or 'it'}"
    print(f"run {run} is settled again {kind}: version {found['version']}; see `refold settlements --run {run}`")
