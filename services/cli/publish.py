"""``refold publish`` and ``refold import``: events from files into the instance."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from services.cli.client import Client, connected
from services.cli.errors import NO, UNREACHABLE, USAGE, CliError
from services.cli.options import AsJson, Data, Url
from services.cli.output import console, print_json, print_table, progress
from services.cli.sending import Tally, batches, send

if TYPE_CHECKING:
    from services.importers.run import ImportedRun

WAIT_S = 600.0
"""How long ``--wait`` waits for projections that make no progress."""


def register(app: typer.Typer) -> None:
    """Add the commands of this group."""
    app.command("publish")(publish)
    app.command("import")(import_)


def publish(
    file: Annotated[str, typer.Argument(metavar="[FILE]", help="JSON lines, one event or an array; - is stdin.")] = "-",
    ack: Annotated[str, typer.Option(help="durable: answer when archived; fast: when the log has it.")] = "durable",
    data: Data = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Publish events: CloudEvents as JSON lines, one document or an array. Exit code 1 when any was not taken."""
    if ack not in ("durable", "fast"):
        raise CliError(f"--ack is {ack!r}: durable or fast", USAGE)
    tally = Tally()
    with connected(data, url) as client:
        for batch in batches(_lines(file)):
            for outcome in send(client, batch, ack=ack, waiting=_say):
                tally.add(outcome)
                if as_json:
                    print_json(outcome)
    if not as_json:
        _report(tally)
    if tally.failed:
        raise typer.Exit(NO)


def _lines(file: str) -> Iterator[bytes]:
    """Each event of the source as JSON text, unread: the door judges it."""
    try:
        source = sys.stdin.buffer if file == "-" else Path(file).open("rb")  # noqa: SIM115 - closed with the process
        first = b""
        while not first.strip():
            first = source.readline()
            if not first:
                return
        if first.lstrip().startswith(b"[") or not _complete(first):
            yield from _documents(first + source.read(), file)
            return
        yield first.strip()
        for line in source:
            if line.strip():
                yield line.strip()
    except OSError as error:
        raise CliError(f"cannot read {file}: {error.strerror}", USAGE) from error


def _complete(line: bytes) -> bool:
    try:
        json.loads(line)
    except RecursionError:
        return True
    except ValueError:
        return False
    return True


def _documents(raw: bytes, file: str) -> Iterator[bytes]:
    import msgspec

    try:
        if raw.lstrip().startswith(b"["):
            yield from (bytes(item) for item in msgspec.json.decode(raw, type=list[msgspec.Raw]))
        else:
            yield bytes(msgspec.json.decode(raw, type=msgspec.Raw))
    except (msgspec.DecodeError, RecursionError) as error:
        raise CliError(f"{file}: neither JSON lines nor a JSON document: {error}", USAGE) from error


def _report(tally: Tally) -> None:
    parts = [f"{count:,} {status}" for status, count in sorted(tally.counts.items())]
    console().print(", ".join(parts) or "no events")
    if tally.failures:
        rows = [(one.get("id"), one["status"], one.get("code"), one.get("message")) for one in tally.failures[:20]]
        print_table(("event", "outcome", "code", "why"), rows)
    if tally.failed > 20:
        console().print(f"and {tally.failed - 20:,} more; `refold refused` lists what is kept")


def _say(why: str) -> None:
    print(f"refold: {why}; trying again", file=sys.stderr)


def import_(
    path: Annotated[Path, typer.Argument(metavar="FILE|DIR", help="A file, or a folder of files.")],
    format: Annotated[str, typer.Option("--format", help="chat, swe-agent or relay.")],
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many runs.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until every projection has it.")] = False,
    agent: Annotated[str, typer.Option(help="Name of the agent, in place of the source's.")] = "",
    start: Annotated[str, typer.Option(help="When runs without times began: RFC 3339 or `now`.")] = "",
    data: Data = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Import recorded trajectories. Ids come from the content: importing again changes nothing."""
    from events.errors import SetupError
    from services.importers.registry import FORMATS, files

    if format not in FORMATS:
        raise CliError(f"--format is {format!r}: one of {', '.join(FORMATS)}", USAGE)
    try:
        found = files(path, FORMATS[format])
    except SetupError as error:
        raise CliError(str(error), USAGE) from error
    source = _Source(found, format, agent, limit, _moment(start))
    started = time.monotonic()
    with connected(data, url) as client:
        tally = _send_all(client, source)
        if wait:
            wait_for_projections(client)
    seconds = time.monotonic() - started
    if as_json:
        print_json(_document(source, tally, seconds))
    else:
        _summary(source, tally, seconds)
    if tally.failed or not source.runs:
        raise typer.Exit(NO)


def _moment(text: str) -> datetime | None:
    from events.errors import Refused
    from events.times import check_time, instant

    if not text:
        return None
    if text == "now":
        return datetime.now(UTC)
    try:
        return instant(check_time(text))
    except Refused as error:
        raise CliError(f"--start: {error}", USAGE) from error


class _Source:
    """The runs of the files, as they are read."""

    def __init__(self, found: list[Path], format: str, agent: str, limit: int | None, start: datetime | None) -> None:
        self.files, self.format, self.agent, self.limit, self.start = found, format, agent, limit, start
        self.files_read = 0
        self.runs: list[str] = []
        self.events = 0
        self.skipped: list[tuple[str, str, str]] = []

    def read(self) -> Iterator[ImportedRun]:
        from services.importers.registry import FORMATS, read_file
        from services.importers.run import Skipped

        for file in self.files:
            for item in read_file(file, FORMATS[self.format], self.agent):
                if isinstance(item, Skipped):
                    self.skipped.append((str(file), item.part, item.reason))
                    continue
                self.runs.append(item.run)
                self.events += len(item.events)
                yield item if self.start is None else item.starting_at(self.start)
                if self.limit is not None and len(self.runs) >= self.limit:
                    return
            self.files_read += 1

    def lines(self) -> Iterator[bytes]:
        for run in self.read():
            # ASCII JSON: lone surrogates of odd sources reach the door as escapes, where they have their defined form
            yield from (json.dumps(event).encode() for event in run.events)


def _send_all(client: Client, source: _Source) -> Tally:
    tally = Tally()
    with progress("events") as bar:
        task = bar.add_task("importing", total=None, rate="-")
        started = time.monotonic()
        for batch in batches(source.lines()):
            for outcome in send(client, batch, ack="durable", waiting=_say):
                tally.add(outcome)
            done = tally.counts.total()
            rate = done / max(time.monotonic() - started, 1e-9)
            read = max(source.files_read, 0)
            total = source.events if read == len(source.files) else None
            name = f"importing {len(source.runs):,} runs, {read}/{len(source.files)} files"
            bar.update(task, completed=done, total=total, rate=f"{rate:,.0f}", description=name)
    return tally


def wait_for_projections(client: Client) -> None:
    """Return when every projection has folded what the archive holds now. Raises CliError when one is stuck."""
    token = client.get("/v1/log")["token"]
    best, since = -1, time.monotonic()
    with progress("events") as bar:
        task = bar.add_task("folding", total=None, rate="-")
        while token:
            late = [one for one in client.get("/v1/projections", after=token)["items"] if not one["reached"]]
            if not late:
                return
            behind = sum(one["lag_events"] for one in late)
            if best < 0 or behind < best:
                best, since = behind, time.monotonic()
            if time.monotonic() - since > WAIT_S:
                names = ", ".join(one["name"] for one in late)
                raise CliError(f"{names} made no progress for {WAIT_S:g} s: see `refold status`", UNREACHABLE)
            bar.update(task, description=f"folding, {behind:,} to go")
            time.sleep(0.05)


def _document(source: _Source, tally: Tally, seconds: float) -> dict[str, Any]:
    return {
        "format": source.format,
        "files": len(source.files),
        "runs": source.runs,
        "events": source.events,
        "outcomes": dict(tally.counts),
        "skipped": [{"file": file, "part": part, "reason": reason} for file, part, reason in source.skipped],
        "failures": tally.failures,
        "seconds": round(seconds, 3),
    }


def _summary(source: _Source, tally: Tally, seconds: float) -> None:
    rate = source.events / max(seconds, 1e-9)
    console().print(f"{len(source.runs):,} runs, {source.events:,} events in {seconds:.1f} s ({rate:,.0f} events/s)")
    _report(tally)
    if source.skipped:
        reasons: dict[str, int] = {}
        for _, _, reason in source.skipped:
            reasons[reason] = reasons.get(reason, 0) + 1
        print_table(("skipped#", "why"), [(count, reason) for reason, count in reasons.items()])
    if source.runs:
        console().print(f"[dim]look at one: refold events --run {source.runs[0]}[/dim]")
