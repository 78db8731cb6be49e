"""``refold beliefs`` and ``belief``: what an agent has learned, what of a user, and why it is believed."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from services.cli.client import connected, segment
from services.cli.options import AsJson, Data, Limit, OfAgent, OfOrg, OfUser, Url, one_scope
from services.cli.output import (
    hint,
    one_line,
    piped,
    print_entries,
    print_fields,
    print_json,
    print_lines,
    say,
)
from services.cli.read import read_note, second

BAR = 10
"""Cells of a bar that shows a confidence."""
STATUSES = ("candidate", "active", "constraint", "retired")
At = Annotated[
    str | None, typer.Option("--at", metavar="TIME", help="As of this moment, RFC 3339, or the end of this UTC day.")
]


def register(app: typer.Typer) -> None:
    """Add the commands of this group."""
    app.command("beliefs")(beliefs)
    app.command("belief")(belief)


def beliefs(
    agent: OfAgent = None,
    user: OfUser = None,
    org: OfOrg = False,
    status: Annotated[str, typer.Option(metavar="STATE", help=f"One of {', '.join(STATUSES)}.")] = "",
    at: At = None,
    limit: Limit = None,
    data: Data = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List what an agent has learned, the most confident first.

    Or what was learned of a user; with neither, what the organisation has.
    """
    whose = one_scope(user, agent, org)
    with connected(data, url) as client:
        found = list(client.items("/v1/beliefs", limit, status=status or None, at=at, **whose))
        notices = [] if as_json else list(client.items("/v1/notices", limit, at=at, **whose))
    if as_json:
        print_lines(found)
        return
    rows = [
        (_confidence(one["confidence"]), one["status"], one["supports"], one["against"],
         second(one.get("last_verified"))[:10], one["belief"], one_line(one["statement"]))
        for one in found
    ]  # fmt: skip
    columns = ("confidence", "status", "for#", "against#", "verified", "belief", "statement")
    print_entries(columns, rows, below=("statement",), empty="no beliefs yet")
    for notice in notices:
        if notice["standing"] == "constraint" and "tool" in notice:
            continue  # the belief about that tool says so
        say(f"{notice['standing']}: {notice['notice']} ({_times(notice)})", style="yellow")
    if found and not piped():
        hint("why one is believed: `refold belief NAME`, with the same --agent or --user")


def belief(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The belief.")],
    agent: OfAgent = None,
    user: OfUser = None,
    org: OfOrg = False,
    why: Annotated[bool, typer.Option("--why", help="All of its evidence, not the latest alone.")] = False,
    at: At = None,
    limit: Limit = None,
    data: Data = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show one belief and why it is believed.

    `refold events --id ID` shows an event that speaks for or against it, `refold events --run ID` all those of a run.
    """
    whose, path = one_scope(user, agent, org), f"/v1/beliefs/{segment(name)}"
    with connected(data, url) as client:
        found = client.get(path, at=at, **whose)
        if why or limit is not None:
            found["evidence"] = list(client.items(f"{path}/evidence", limit, at=at, **whose))
    if as_json:
        print_json(found)
        return
    print_fields(found["belief"], _fields(found))
    rows = [
        (second(one["time"])[:16], one["kind"], _counted(one["counts"]), one.get("run", ""), _event(one["event_id"]),
         one_line(one.get("detail", "")))
        for one in found["evidence"]
    ]  # fmt: skip
    columns = ("time", "evidence", "says", "run", "event", "detail")
    print_entries(columns, rows, below=("event", "detail"), empty="no evidence")
    if len(rows) < found["sources"] and limit is None:
        hint(f"the latest {len(rows)} of {found['sources']}; `--why` shows them all")


def _fields(found: dict[str, Any]) -> list[tuple[str, Any]]:
    for_it, against = found["supports"], found["against"]
    return [
        ("says", found["statement"]),
        ("kind", found["kind"].replace("_", " ")),
        ("status", found["status"]),
        ("because", found.get("retired_because")),
        ("confidence", _confidence(found["confidence"])),
        ("evidence", f"{for_it} for, {against} against, from {found['sources']} sources"),
        ("failures in a row", found["failures_in_a_row"] or None),
        ("last verified", second(found.get("last_verified"))),
        ("holds where", found.get("trigger")),
        ("tendency", found.get("tendency")),
        ("limits", found.get("limits")),
        ("proposed", found.get("proposed_by") and f"{second(found['proposed'])} by event {found['proposed_by']}"),
        ("proposed because of", ", ".join(found["because"])),
        ("evidence elsewhere", found["elsewhere"] and f"{len(found['elsewhere'])}, not counted"),
        ("by day", "; ".join(map(_day, found["days"][-BAR:]))),
        ("note", read_note(found["read"])),
    ]


def _day(day: dict[str, Any]) -> str:
    return f"{day['day']} {day['supports']}:{day['against']} x {day['weight']:.2f}"


def _confidence(confidence: float) -> str:
    """A number, and a bar of it for people."""
    if piped():
        return f"{confidence:.2f}"
    full = round(confidence * BAR)
    return f"{confidence:.2f} {'█' * full}{'░' * (BAR - full)}"


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{number} {label.replace('_', ' ')}" for label, number in counts.items()) or "withdrawn"


def _event(event_id: str) -> str:
    """An id, and for people, below whose row it stands alone, what it is."""
    return event_id if piped() else f"event {event_id}"


def _times(notice: dict[str, Any]) -> str:
    runs = notice["met"]
    return f"{runs} run{'' if runs == 1 else 's'}, {notice['contexts']} context{'' if notice['contexts'] == 1 else 's'}"
