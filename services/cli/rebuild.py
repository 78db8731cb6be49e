"""``refold rebuild``: refold read models, look first at what would change, put a part right, go back, clear away."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import typer
from httpx import Response

from services.cli.client import Client, connected, segment
from services.cli.errors import NO, USAGE, CliError
from services.cli.options import AsJson, Data, Url
from services.cli.output import duration, hint_dead_letters, one_line, print_json, print_table, say
from services.cli.watching import POLL_S, watch, watch_one

_VALUE_CHARS = 120
_UNLESS_READY = "unless it was ready in that moment, nothing is changed"

_PART = "a part is repaired (--key, --tenant)"
_GOES_WITH = {
    "a rebuild": ("--check", "--rate", "--processes", "--allow-dead-letters"),
    "--dry-run": ("--key", "--tenant", "--rate"),
    _PART: ("--key", "--tenant"),
    "--cancel": (),
    "--rollback": (),
    "--drop-old": ("--keep",),
}
"""What the command does, and the options that mean something then."""


_Act = Callable[..., dict[str, Any]]
_Show = Callable[[dict[str, Any]], None]


Names = Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Projections.")]
Every = Annotated[bool, typer.Option("--all", help="Every projection.")]
Check = Annotated[bool, typer.Option("--check", help="Compare with a second refold before the swap.")]
Rate = Annotated[float | None, typer.Option("--rate", metavar="N", min=1, help="Read N events a second at most.")]
Processes = Annotated[
    int | None, typer.Option("--processes", metavar="N", min=1, max=256, help="Fold in N processes (one a core).")
]
AllowDeadLetters = Annotated[
    bool, typer.Option("--allow-dead-letters", help="Swap though events cannot be folded that could be before.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would change, row by row.")]
Key = Annotated[
    str | None, typer.Option("--key", metavar="KEY", help="Put right the rows of one key (task/t1), in place.")
]
Tenant = Annotated[
    str | None, typer.Option("--tenant", metavar="ORG", help="Put right the rows of one organisation, in place.")
]
Cancel = Annotated[bool, typer.Option("--cancel", help="Cancel the rebuild that runs.")]
Rollback = Annotated[bool, typer.Option("--rollback", help="Go back to the generation before.")]
DropOld = Annotated[bool, typer.Option("--drop-old", help="Drop earlier generations for good.")]
Keep = Annotated[
    int | None, typer.Option("--keep", metavar="N", min=0, help="With --drop-old: all but the last N (1).")
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("rebuild")(rebuild)


def rebuild(
    names: Names = None,
    every: Every = False,
    check: Check = False,
    rate: Rate = None,
    processes: Processes = None,
    allow_dead_letters: AllowDeadLetters = False,
    dry_run: DryRun = False,
    key: Key = None,
    tenant: Tenant = None,
    cancel: Cancel = False,
    rollback: Rollback = False,
    drop_old: DropOld = False,
    keep: Keep = None,
    data: Data = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Refold projections from the log, and swap.

    Each is built beside the one that is read, from the start of the log, all of them in one pass. A rebuild that runs
    already is joined. With --dry-run, nothing is changed; with --key or --tenant, a part of what is read is made anew.
    """
    modes = {"--dry-run": dry_run, "--cancel": cancel, "--rollback": rollback, "--drop-old": drop_old}
    how = {"check": check, "rate": rate, "processes": processes, "allow_dead_letters": allow_dead_letters}
    which = {"key": key, "tenant": tenant, "keep": keep, "rate": rate}
    mode = _mode([name for name, wanted in modes.items() if wanted], how | which)
    if bool(names) == every:
        raise CliError("name projections, or say --all" + (", not both" if names else ""), USAGE)
    with connected(data, url) as client:
        chosen = list(dict.fromkeys(names or [one["name"] for one in client.get("/v1/projections")["items"]]))
        if mode == "a rebuild":
            _rebuild_all(client, chosen, how, as_json)
            return
        act, show = _ACTS[mode]
        given: dict[str, Any] = {name: value for name, value in which.items() if f"--{name}" in _GOES_WITH[mode]}
        if mode == "--cancel":
            # all are asked before one is waited for, lest another is ready meanwhile
            given["asked"] = {name: client.request("DELETE", _path(name, "rebuild")) for name in chosen}
        _one_by_one(client, chosen, partial(act, **given), print_json if as_json else show, every=every)


def _mode(wanted: Sequence[str], options: Mapping[str, Any]) -> str:
    """What is to be done. Raises CliError where options contradict each other."""
    if len(wanted) > 1:
        raise CliError(f"{' and '.join(wanted)} are different things: say one of them", USAGE)
    of_a_part = options["key"] is not None or options["tenant"] is not None
    mode = wanted[0] if wanted else _PART if of_a_part else "a rebuild"
    given = [f"--{name.replace('_', '-')}" for name, value in options.items() if value not in (None, False)]
    for name in given:
        if name not in _GOES_WITH[mode]:
            others = " or ".join(other for other, names in _GOES_WITH.items() if name in names)
            where = f"where {mode}" if mode == _PART else f"with {mode}"
            raise CliError(f"{name} means nothing {where}; it goes with {others}", USAGE)
    return mode


def _one_by_one(client: Client, names: Sequence[str], act: _Act, show: _Show, *, every: bool) -> None:
    """Do it for each; what is refused for one is told, and does not keep the others from it.

    Where all are meant, it is enough that it could be done for one.
    """
    refused: list[CliError] = []
    for name in names:
        try:
            document = act(client, name)
        except CliError as error:
            if error.exit_code != NO or len(names) == 1:
                raise
            print(f"refold: {error}", file=sys.stderr)
            refused.append(error)
        else:
            show(document)
    if refused and (not every or len(refused) == len(names)):
        raise typer.Exit(NO)


# --- a rebuild -------------------------------------------------------------------------------------------------------


def _rebuild_all(client: Client, names: Sequence[str], body: dict[str, Any], as_json: bool) -> None:
    done = start_and_watch(client, names, body)
    for job in done:
        if as_json:
            print_json(job)
        else:
            print_rebuilt(job, checked=bool(body.get("check")))
    if not as_json:
        hint_dead_letters(one for one in client.get("/v1/projections")["items"] if one["name"] in names)
    if any(job["state"] != "done" for job in done):
        raise typer.Exit(NO)


def start_and_watch(client: Client, names: Sequence[str], body: dict[str, Any]) -> list[dict[str, Any]]:
    """Begin to rebuild, or join; the documents of the rebuilds that are over."""
    begun = client.post("/v1/projections/rebuild", {**body, "projections": list(names)})["items"]
    notes = {one["projection"]: one["note"] for one in begun}
    command = f"refold rebuild {' '.join(names)}"

    def leave() -> str:
        return f"the instance goes on by itself; `{command}` joins it, `{command} --cancel` cancels it"

    jobs = watch(client, {name: _path(name, "rebuild") for name in names}, lambda name: f"refolding {name}", leave)
    return [job | {"note": notes.get(name) or job.get("note", "")} for name, job in jobs.items()]


def print_rebuilt(job: dict[str, Any], *, checked: bool = False) -> None:
    """What became of one. ``checked``: a second refold was asked for; a note tells where it may not have been made."""
    name = job["projection"]
    if job["state"] != "done":
        say(f"{name} {job['state']}: {one_line(job['error'])}", style="red")
        return
    say(
        f"{name} refolded: {job['events']:,} events in {duration(job['seconds'])}, folded at "
        f"{job['events_per_s']:,} events/s; reads now use generation {job['generation']}"
        + (", which equals a second refold" if checked and not job["note"] else "")
    )
    if job["note"]:
        say(f"{name}: {job['note']}", style="yellow")


# --- looking first, and a part alone ---------------------------------------------------------------------------------


def _dry_run(client: Client, name: str, **part: Any) -> dict[str, Any]:
    return _job(client, name, "dry-run", "trying", "it had changed nothing", **part)


def _repair(client: Client, name: str, **part: str | None) -> dict[str, Any]:
    return _job(client, name, "repair", "repairing", _UNLESS_READY, **part)


def _job(client: Client, name: str, what: str, verb: str, then: str, **params: Any) -> dict[str, Any]:
    """The result of a job. Raises CliError when there is none."""
    begun = client.post(_path(name, what), **params)
    job = watch_one(client, f"/v1/jobs/{segment(begun['id'])}", f"{verb} {name}", then)
    if job["state"] != "done":
        raise CliError(f"{name} {job['state']}: {one_line(job['error'])}", NO)
    result: dict[str, Any] = job["result"]
    return result


def _print_dry_run(result: dict[str, Any]) -> None:
    other = "" if result["current_code"] else ", made by other code than runs now"
    say(f"{result['name']}, {_scope(result)}: generation {result['generation']}{other}", style="bold")
    say(
        f"{result['events']:,} events folded in {duration(result['eta_s'])} ({result['events_per_s']:,} events/s) "
        "in one process, so a rebuild takes no longer than about that"
    )
    if not result["differs"]:
        say("nothing would change", style="green")
        _warn_of_nothing(result)
        return
    print_diff(result)


def _print_repaired(result: dict[str, Any]) -> None:
    what = "these rows were put right" if result["differs"] else "every row was right"
    say(f"{result['name']}, {_scope(result)}: {what} ({result['events']:,} events)", style="bold")
    if result["differs"]:
        print_diff(result)
    else:
        _warn_of_nothing(result)


def _warn_of_nothing(result: dict[str, Any]) -> None:
    """Nothing differs from nothing: the part may not be what was meant."""
    a_part = result["key"] is not None or result["tenant"] is not None
    if a_part and not any(one["live_rows"] or one["new_rows"] for one in result["tables"]):
        name = result["name"]
        say(f"{name} has no row of it, and gets none: `refold rows {name}` shows which keys there are", style="yellow")


def print_diff(result: dict[str, Any]) -> None:
    """How many rows differ in each table, in which its columns do, and the first rows field by field."""
    columns = ("table", "rows now#", "rows then#", "added#", "changed#", "removed#", "shape")
    rows = [
        (one["table"], one["live_rows"], one["new_rows"], one["added"], one["changed"], one["removed"], _shape(one))
        for one in result["tables"]
    ]
    print_table(columns, rows)
    for row in result["first"]:
        say(f"{row['table']}, row {' / '.join(str(part) for part in row['key'])}: {row['change']}", style="bold")
        for field in row["fields"]:
            now, then = _value(field["live"]), _value(field["new"])
            shown = {"added": then, "removed": now}.get(row["change"], f"{now} -> {then}")
            say(f"  {field['column']}: {shown}")
    differing = sum(one["added"] + one["changed"] + one["removed"] for one in result["tables"])
    if differing > len(result["first"]) > 0:
        say(f"... {differing:,} rows differ in all, these are the first {len(result['first'])}", style="dim")


def _shape(table: dict[str, Any]) -> str:
    told = {"new": "a new table", "gone": "the table goes", "rekeyed": "another primary key: rows not compared"}
    said = [told[table["state"]]] if table["state"] in told else []
    said += [f"was {table['was']}"] if table["was"] else []
    said += [f"column {one['column']} was {one['was']}" for one in table["columns_renamed"]]
    said += [f"new column {name}" for name in table["columns_new"]]
    said += [f"column {name} goes" for name in table["columns_gone"]]
    said += [f"{one['column']}: {one['live']} -> {one['new']}, not compared" for one in table["columns_retyped"]]
    return "; ".join(said)


def _scope(result: dict[str, Any]) -> str:
    if result["key"] is not None:
        return f"{result['key']} of {result['tenant']}"
    return f"tenant {result['tenant']}" if result["tenant"] is not None else "everything"


def _value(value: Any) -> str:
    """Exactly what stands there (1 and "1" differ), cut where it is long."""
    return one_line(json.dumps(value, ensure_ascii=False), _VALUE_CHARS)


# --- cancelling, going back, clearing away ---------------------------------------------------------------------------


def _cancel(client: Client, name: str, asked: Mapping[str, Response]) -> dict[str, Any]:
    """Wait until a rebuild has ended that was asked to."""
    path = _path(name, "rebuild")
    job: dict[str, Any] = client.document(asked[name])
    state, built_elsewhere = job["state"], job["id"]
    while state == "running":
        time.sleep(POLL_S)
        states = {one["name"]: one["state"] for one in client.items("/v1/generations", projection=name)}
        if built_elsewhere in states:
            state = {"building": "running", "active": "done"}.get(states[built_elsewhere], "cancelled")
        else:
            state = client.get(path)["state"]
    if state == "done":
        raise CliError(f"{name} was rebuilt before that could be cancelled: `refold rebuild {name} --rollback`", NO)
    return {"projection": name, "state": "cancelled"}


def _print_cancelled(document: dict[str, Any]) -> None:
    say(f"{document['projection']}: the rebuild is cancelled; what was read is read on")


def _rollback(client: Client, name: str) -> dict[str, Any]:
    return {"projection": name, **_job(client, name, "rollback", "going back with", _UNLESS_READY)}


def _print_rolled_back(document: dict[str, Any]) -> None:
    name = document["projection"]
    say(f"{name}: reads use generation {document['generation']} again")
    if not document["current_code"]:
        say(f"{name}: other code made it; it stands still unless workers of that code run", style="yellow")


def _drop_old(client: Client, name: str, *, keep: int | None) -> dict[str, Any]:
    document: dict[str, Any] = client.post(_path(name, "drop-old"), keep=keep)
    return document


def _print_dropped(document: dict[str, Any]) -> None:
    nothing = "nothing; --keep 0 leaves none but the one that is read"
    say(f"{document['projection']}: dropped {', '.join(document['dropped']) or nothing}")


def _path(name: str, what: str) -> str:
    return f"/v1/projections/{segment(name)}/{what}"


_ACTS: Mapping[str, tuple[_Act, _Show]] = {
    "--dry-run": (_dry_run, _print_dry_run),
    _PART: (_repair, _print_repaired),
    "--cancel": (_cancel, _print_cancelled),
    "--rollback": (_rollback, _print_rolled_back),
    "--drop-old": (_drop_old, _print_dropped),
}
