"""``refold calibrate``: looking at beliefs again."""

from __future__ import annotations

from typing import Annotated

import typer

from services.cli.client import connected
from services.cli.options import AsJson, Data, Url
from services.cli.output import print_json


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("calibrate")(calibrate)


def calibrate(
    now: Annotated[bool, typer.Option("--now", help="Look at them now, beside the schedule.")] = False,
    data: Data = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Tell when candidate beliefs are looked at again.

    With --now, look at them, and tell what was found.
    """
    with connected(data, url) as client:
        found = client.post("/v1/calibrations") if now else client.get("/v1/calibrations")
    if as_json:
        print_json(found)
    elif now:
        print(f"{found['holds']} beliefs hold, {found['doubtful']} are doubtful, {found['untouched']} untouched")
    else:
        by = f"model {found['model']}" if found["model"] else "evidence alone"
        slots = f"; last {found['last']}, next {found['next']}" if "next" in found else ""
        print(f"beliefs are looked at: {found['schedule']}, by {by}{slots}")
