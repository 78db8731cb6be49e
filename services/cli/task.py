"""``refold task`` and ``resume``: where a task stands, what whoever goes on with it needs, and the task as a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from services.cli import history, resume_page
from services.cli.client import connected, segment
from services.cli.errors import NO, USAGE, CliError
from services.cli.options import AsJson, Data, Limit, Url
from services.cli.output import hint, print_json, print_table, say
from services.cli.read import second
from services.cli.task_file import TaskFile, from_outside

if TYPE_CHECKING:
    from services.cli.client import Client
    from services.cli.sending import Tally

Task = Annotated[str, typer.Argument(metavar="ID", help="The task (the run, where runs have no task).")]


class _ShowFirst(TyperGroup):
    """``refold task ID`` is ``refold task show ID``; a task that is called like a command is shown by the latter."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put ``show`` before what is no command."""
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["show", *args]
        return super().parse_args(ctx, args)


tasks = typer.Typer(cls=_ShowFirst, no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands of this group."""
    app.add_typer(tasks, name="task", help="Show where a task stands; export or import it on its own.")
    app.command("resume")(resume)


@tasks.command("show")
def show(
    task: Task,
    at: history.At = None,
    events: history.Events = False,
    limit: Limit = None,
    data: Data = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show where a task stands: `refold task ID`. Or where it stood, or how it came there."""
    if events:
        if at is not None:
            raise CliError("give --at or --history", USAGE)
        history.print_timeline(task, limit, data, url, as_json)
        return
    with connected(data, url) as client:
        found = client.get(f"/v1/tasks/{segment(task)}", at=at)
    if as_json:
        print_json(found)
        return
    resume_page.print_task(found)
    rows = [(one["attempt"], one["run"], second(one.get("started")), _end(one)) for one in found["runs"]]
    print_table(("attempt#", "run", "started", "end"), rows, title="Runs", empty="no runs")
    resume_page.print_children(found)
    resume_page.print_decisions(found)


def resume(task: Task, data: Data = None, url: Url = None, as_json: AsJson = False) -> None:
    """Show what a new process needs to go on with a task."""
    with connected(data, url) as client:
        found = client.get(f"/v1/tasks/{segment(task)}/resume")
    if as_json:
        print_json(found)
        return
    resume_page.print_resume(found)


@tasks.command("export")
def export(task: Task, data: Data = None, url: Url = None) -> None:
    """Write a task's events to standard output."""
    with connected(data, url) as client:
        for chunk in client.stream(f"/v1/tasks/{segment(task)}/export"):
            sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()


@tasks.command("import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `refold task export` wrote.")],
    data: Data = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Bring an exported task in.

    Its events go through the door with their own ids: importing it again changes nothing.
    """
    read = TaskFile.check(file)
    with connected(data, url) as client:
        _check_room(client, read)
        tally = _send(client, read)
    if as_json:
        print_json({"task": read.task, "outcomes": dict(tally.counts), "failures": tally.failures})
    else:
        _report(read, tally)
    if tally.failed:
        raise typer.Exit(NO)


def _send(client: Client, read: TaskFile) -> Tally:
    """Publish the events in order, up to the first batch of which something is not taken."""
    from services.cli.sending import Line, Tally, batches, send

    tally = Tally()
    for batch in batches(Line(text, f"line {number}") for number, text in read.lines()):
        for outcome in send(client, batch, ack="durable", waiting=lambda why: hint(f"{why}; trying again")):
            tally.add(outcome)
        if tally.failed:
            break
    return tally


def _check_room(client: Client, read: TaskFile) -> None:
    """Raise CliError where the file would change a task of this name that has events of its own here."""
    path = f"/v1/tasks/{segment(read.task)}/timeline"
    if client.request("GET", path, params={"limit": 1}).status_code == 404:
        return
    here = [one for one in client.items(path) if from_outside(one["type"])]
    strangers = [one for one in here if one["id"] not in read.ids]
    if strangers and not read.ids <= {one["id"] for one in here}:
        last = strangers[-1]
        raise CliError(
            f"a task {read.task!r} is already here and went another way: {last['type']} at {last['position']}, of run "
            f"{last['run']!r}, is not in the file; nothing was imported. Import it into another instance, or for "
            "another organisation (REFOLD_ORG)",
            NO,
        )


def _report(read: TaskFile, tally: Tally) -> None:
    from services.cli.sending import TAKEN

    taken = ", ".join(f"{tally.counts[status]:,} {status}" for status in TAKEN if tally.counts[status])
    say(f"task {read.task}: {taken or 'no event taken'}")
    if tally.failures:
        rows = [(one.get("where"), one.get("id"), one.get("code"), one.get("message")) for one in tally.failures[:20]]
        print_table(("where", "event", "code", "why~"), rows)
    else:
        hint(f"look at it: refold resume {read.task}")


def _end(run: dict[str, Any]) -> str:
    return run.get("reason") or ("over" if run["over"] else "goes on")
