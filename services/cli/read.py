"""``refold runs``, ``events``, ``settlements``, ``rows``: reading."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from services.cli.client import connected, segment
from services.cli.errors import USAGE, CliError
from services.cli.options import AsJson, Data, Limit, Url
from services.cli.output import hint, one_line, piped, print_fields, print_json, print_lines, print_table

OfRun = Annotated[str | None, typer.Option("--run", metavar="ID", help="The run.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this group."""
    app.command("runs")(runs)
    app.command("events")(events)
    app.command("settlements")(settlements)
    app.command("rows")(rows)


def runs(
    task: Annotated[str | None, typer.Option(metavar="ID", help="Of this task alone.")] = None,
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
    # a run that no task was named for is its own task
    tasks = ("" if one["task"] == one["run"] else one["task"] for one in found)
    rows = [
        (one["run"], one["attempt"], one["agent"], second(one["started"])[:16], task, one_line(one["goal"]))
        for one, task in zip(found, tasks, strict=True)
    ]
    print_table(("run", "attempt#", "agent~", "started", "task~", "goal~"), rows, empty="no runs yet")


def events(
    run: OfRun = None,
    id_: Annotated[str | None, typer.Option("--id", metavar="ID", help="Instead: the event of this id.")] = None,
    unknown: Annotated[
        bool, typer.Option("--unknown", help="Instead: event types that this version does not know, counted.")
    ] = False,
    limit: Limit = None,
    data: Data = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List the events of a run, as they were received."""
    if (run is not None) + (id_ is not None) + unknown != 1:
        raise CliError("name a run with --run, or an event with --id, or say --unknown", USAGE)
    with connected(data, url) as client:
        if unknown:
            _print_unknown(list(client.items("/v1/log/unknown-types", limit)), as_json)
            return
        path = f"/v1/runs/{segment(run)}/events" if run is not None else f"/v1/events/{segment(id_ or '')}"
        found = client.items(path, limit)
        if as_json:
            print_lines(found)
            return
        rows = [
            (one.get("seq"), _clock(one["time"]), one["type"], one_line(one["data"]), _verdict(one)) for one in found
        ]
    print_table(("seq#", "time", "type", "data~", "verdict"), rows)


def _print_unknown(types: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_lines(types)
        return
    rows = [(one["type"], one["events"], one["first"], one["last"]) for one in types]
    print_table(("type", "events#", "first", "last"), rows, empty="every event is of a known type")


def _clock(time: str) -> str:
    """The time of day for people, all of it for programs."""
    return time if piped() else time[11:23]


def _verdict(event: dict[str, str]) -> str:
    return "" if event["verdict"] == "effective" else event["verdict"]


def second(time: str | None) -> str:
    """A time without its fraction."""
    return (time or "")[:19]


def read_note(read: dict[str, Any]) -> str:
    """What must be known about the read model that answered; empty when all is well."""
    said = {
        "stale": "made by other code, see `refold status`",
        "incomplete": "incomplete: an event could not be folded, see `refold deadletters list`",
    }
    notes = [text for name, text in said.items() if read[name]]
    return "; ".join(notes if read["reached"] else [*notes, "older than asked for"])


def settlements(
    run: Annotated[str | None, typer.Option("--run", metavar="ID", help="Of this run.")] = None,
    session: Annotated[str | None, typer.Option("--session", metavar="ID", help="The state of this session.")] = None,
    wait: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long to wait for a run that is being settled.")
    ] = 5.0,
    data: Data = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show the notes that a run left, or a session's state.

    The state of a session is what its next context starts from.
    """
    if (run is None) == (session is None):
        raise CliError("give --run or --session", USAGE)
    with connected(data, url) as client:
        if run is not None:
            found = client.get(f"/v1/runs/{segment(run)}/settlement", wait_s=wait)
        else:
            found = client.get(f"/v1/sessions/{segment(session or '')}/state", wait_s=wait)
    if as_json:
        print_json(found)
        return
    state = found.get("session_state") or found.get("state") or {}
    print_fields(
        f"run {run}" if run else f"session {session}",
        [
            ("settled by", found.get("by")),
            ("run ended", found.get("reason")),
            ("degraded", found.get("degraded_reason")),
            ("evidence", found.get("evidence")),
            *((name.replace("_", " "), state.get(name)) for name in _STATE_FIELDS),
            ("reflections", found.get("reflections")),
            ("learnings", found.get("learnings")),
            ("being settled", [one["run"] for one in found.get("settling", [])]),
            ("since then", [item for one in found.get("evidence_since", []) for item in one["evidence"]]),
            ("note", read_note(found["read"])),
        ],
    )


_STATE_FIELDS = (
    "goal",
    "current_phase",
    "pending_task",
    "completed_actions",
    "key_decisions",
    "rejected_paths",
    "open_questions",
    "action_items",
)


def rows(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The projection.")],
    table: Annotated[str | None, typer.Argument(metavar="[TABLE]", help="One of its tables; needless for one.")] = None,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="Rows of this partition key alone.")] = None,
    limit: Limit = 100,
    data: Data = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List rows of any projection, your own included.

    Without TABLE, a projection of several lists its tables.
    """
    with connected(data, url) as client:
        path = f"/v1/projections/{segment(name)}/tables"
        tables = client.get(path)["items"]
        if table is None and len(tables) > 1:
            _print_tables(tables, as_json)
            return
        chosen = table or tables[0]["table"]
        found = list(client.items(f"{path}/{segment(chosen)}", limit, key=key))
    order: list[str] = next((one["order"] for one in tables if one["table"] == chosen), [])
    if as_json:
        print_lines(found)
    else:
        _print_rows(found, order)
        if limit is not None and len(found) == limit:
            hint(f"the first {limit}; `--limit` shows more")


def _print_tables(tables: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_lines(tables)
    else:
        print_table(("table", "columns~"), [(one["table"], ", ".join(one["columns"])) for one in tables])


def _print_rows(found: list[dict[str, Any]], order: list[str]) -> None:
    columns = list(found[0]) if found else order
    if len(columns) > MOST_COLUMNS and not piped():
        for one in found:
            print_fields(" / ".join(str(one[name]) for name in order), one.items())
        return
    marked = [column if column in order else f"{column}~" for column in columns]
    print_table(marked, [[one_line(one[column]) for column in columns] for one in found], empty="no rows")


MOST_COLUMNS = 8
"""Rows of more columns are shown one below the other."""
