"""``refold task ID --history`` and ``refold checkpoints``: how a task came to stand where it stands."""

from __future__ import annotations

import re
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from services.cli.client import connected, segment
from services.cli.options import AsJson, Data, Limit, Url
from services.cli.output import hint, one_line, piped, print_json, print_lines, print_table

At = Annotated[
    str | None,
    typer.Option("--at", metavar="POSITION", help="As it stood after this log position, or the event of this id."),
]
Events = Annotated[bool, typer.Option("--history", help="Instead: its events, each with its position.")]


_ID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{6}([0-9a-f]{6})\b")


def register(app: typer.Typer) -> None:
    """Add the commands of this group."""
    app.command("checkpoints")(checkpoints)


def print_timeline(task: str, limit: int | None, data: Path | None, url: str | None, as_json: bool) -> None:
    """The events of a task, in their order."""
    with connected(data, url) as client:
        found = client.items(f"/v1/tasks/{segment(task)}/timeline", limit)
        if as_json:
            print_lines(found)
            return
        rows = [
            (one["position"], one["time"] if piped() else one["time"][5:19].replace("T", " "), one["type"],
             _brief(one["run"]), _brief(one["what"]), "" if one["effect"] == "applied" else one["effect"])
            for one in found
        ]  # fmt: skip
    print_table(("position", "time", "type", "run", "what~", "effect"), rows)
    hint(f"the state after any of them: refold task {quote(task)} --at POSITION")


def _brief(text: str) -> str:
    """For people, ids that were made by themselves as their last characters: what happened needs the room."""
    return text if piped() else _ID.sub(r"…\1", text)


def checkpoints(
    task: Annotated[str, typer.Argument(metavar="TASK", help="The task.")],
    checkpoint: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Print the data of this one: its name, or its position.")
    ] = None,
    limit: Limit = None,
    data: Data = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List the checkpoints that a task keeps, the newest first.

    Or print the data of one.
    """
    path = f"/v1/tasks/{segment(task)}/checkpoints"
    with connected(data, url) as client:
        if checkpoint is not None:
            found = client.get(f"{path}/{segment(checkpoint)}")
            print_json(found if as_json else found["data"])
            return
        kept = list(client.items(path, limit))
    if as_json:
        print_lines(kept)
        return
    rows = [
        (one["position"], one.get("checkpoint"), one.get("data_version"), one["size_bytes"], one["milestone"],
         one.get("run"), one["time"] if piped() else one["time"][:19])
        for one in kept
    ]  # fmt: skip
    columns = ("position", "checkpoint", "version", "bytes#", "milestone", "run", "time")
    print_table(
        columns,
        [[one_line(cell) if isinstance(cell, str) else cell for cell in row] for row in rows],
        empty=f"task {task} keeps no checkpoints",
    )
