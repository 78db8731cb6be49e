"""``refold publish`` and ``refold import``: events from files into the instance."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from services.cli.client import Client, connected
from services.cli.errors import INTERRUPTED, NO, UNREACHABLE, USAGE, CliError
from services.cli.options import AsJson, Data, Url
from services.cli.output import hint, print_json, print_table, progress, say

if TYPE_CHECKING:
    from services.cli.sending import Line, Tally
    from services.importers.run import ImportedRun

WAIT_S = 600.0
"""How long ``--wait`` waits for projections that make no progress."""


class Ack(StrEnum):
    """When a publish is answered."""

    durable = "durable"
    fast = "fast"


class Format(StrEnum):
    """The formats of ``services.importers.registry``, which is slow to import."""

    chat = "chat"
    swe_agent = "swe-agent"
    relay = "relay"


def register(app: typer.Typer) -> None:
    """Add the commands of this group."""
    app.command("publish")(publish)
    app.command("import")(import_)


def publish(
    file: Annotated[str, typer.Argument(metavar="[FILE]", help="JSON lines, one event or an array; - is stdin.")] = "-",
    ack: Annotated[Ack, typer.Option(help="Answer when archived, or when the log has it.")] = Ack.durable,
    data: Data = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Publish events: CloudEvents, as JSON lines or an array.

    Exit code 1 when any was not taken; the others are.
    """
    from services.cli.sending import Tally, batches, send

    tally = Tally()
    with connected(data, url) as client, _taken_so_far(tally):
        for batch in batches(_lines(file)):
            for outcome in send(client, batch, ack=ack, waiting=_say):
                tally.add(outcome)
                if as_json:
                    print_json(outcome)
    if not as_json:
        _report(tally)
    if tally.failed:
        raise typer.Exit(NO)


@contextmanager
def _taken_so_far(tally: Tally) -> Iterator[None]:
    """Answer Ctrl-C with what was taken until then."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        raise CliError(
            f"interrupted: at least {tally.taken:,} events were taken; run it again at any time, "
            "what was taken is recognised by its id and not doubled",
            INTERRUPTED,
        ) from interrupt


def _lines(file: str) -> Iterator[Line]:
    """Each event of the source as JSON text: the door judges it."""
    from services.cli.sending import read_line

    try:
        source = sys.stdin.buffer if file == "-" else Path(file).open("rb")  # noqa: SIM115 - closed with the process
        number, first = 0, b""
        while not first.strip():
            number, first = number + 1, source.readline()
            if not first:
                return
        rest: Iterable[bytes] = source
        if first.lstrip().startswith(b"[") or not _complete(first):
            whole = first + source.read()
            document = _document_of(whole)
            if document is not None:
                yield from document
                return
            _check_lines(whole, file)
            rest = whole[len(first) :].splitlines(keepends=True)
        yield read_line(first.strip(), f"line {number}")
        for later, line in enumerate(rest, number + 1):
            if line.strip():
                yield read_line(line.strip(), f"line {later}")
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


def _document_of(raw: bytes) -> list[Line] | None:
    """The events of a text that is one JSON document; None when it is none."""
    import msgspec

    from services.cli.sending import Line

    try:
        if not raw.lstrip().startswith(b"["):
            return [Line(bytes(msgspec.json.decode(raw, type=msgspec.Raw)))]
        items = msgspec.json.decode(raw, type=list[msgspec.Raw])
    except (msgspec.DecodeError, RecursionError):
        return None
    return [Line(bytes(item), f"item {number}") for number, item in enumerate(items, 1)]


def _check_lines(raw: bytes, file: str) -> None:
    """Raise CliError when a text looks like one broken document rather than lines of which some are bad."""
    lines = [line.strip() for line in raw.splitlines() if line.strip()]
    alone = len(lines) == 1 or any(line.startswith(b"{") and _complete(line) for line in lines)
    if alone and lines[0] not in (b"[", b"{"):
        return
    try:
        json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise CliError(f"{file}: neither JSON lines nor a JSON document: {error}", USAGE) from error


def _report(tally: Tally) -> None:
    parts = [f"{count:,} {status}" for status, count in sorted(tally.counts.items())]
    say(", ".join(parts) or "no events")
    for note, count in tally.notes.most_common(10):
        say(f"{count:,} event{'' if count == 1 else 's'} {note}", style="yellow")
    if tally.failures:
        rows = [
            (one.get("where"), one.get("id"), one["status"], one.get("code"), one.get("message"))
            for one in tally.failures[:20]
        ]
        print_table(("where", "event", "outcome", "code", "why~"), rows)
    if tally.failed > 20:
        say(f"and {tally.failed - 20:,} more; `refold refused` lists what is kept")


def _say(why: str) -> None:
    print(f"refold: {why}; trying again", file=sys.stderr)


def import_(
    path: Annotated[Path, typer.Argument(metavar="FILE|DIR", help="A file, or a folder of files.")],
    format: Annotated[Format, typer.Option("--format", help="What they are.")],
    limit: Annotated[int | None, typer.Option(metavar="N", min=1, help="At most so many runs.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until every projection has it.")] = False,
    agent: Annotated[str, typer.Option(metavar="NAME", help="Name of the agent, in place of the source's.")] = "",
    start: Annotated[str, typer.Option(metavar="TIME", help="When runs without times began: RFC 3339 or `now`.")] = "",
    data: Data = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Import recorded trajectories; again changes nothing.

    Ids come from the content, so what is there already is recognised.
    """
    from events.errors import SetupError
    from services.cli.sending import Tally
    from services.importers.registry import FORMATS, files

    try:
        found = files(path, FORMATS[format])
    except SetupError as error:
        raise CliError(str(error), USAGE) from error
    source, tally = _Source(found, format, agent, limit, _moment(start)), Tally()
    started = time.monotonic()
    with connected(data, url) as client, _taken_so_far(tally):
        _send_all(client, source, tally)
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
        self.undated = 0
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
                self.undated += item.synthetic and self.start is None
                yield item if self.start is None else item.starting_at(self.start)
                if self.limit is not None and len(self.runs) >= self.limit:
                    return
            self.files_read += 1

    def lines(self) -> Iterator[Line]:
        from services.cli.sending import Line

        for run in self.read():
            # ASCII JSON: lone surrogates of odd sources reach the door as escapes, where they have their defined form
            yield from (Line(json.dumps(event).encode()) for event in run.events)


def _send_all(client: Client, source: _Source, tally: Tally) -> None:
    from services.cli.sending import batches, send

    with progress("files") as bar:
        task = bar.add_task("importing", total=len(source.files), rate="-")
        started = time.monotonic()
        for batch in batches(source.lines()):
            for outcome in send(client, batch, ack="durable", waiting=_say):
                tally.add(outcome)
            done = tally.counts.total()
            rate = f"{done / max(time.monotonic() - started, 1e-9):,.0f}"
            name = f"importing {done:,} events of {len(source.runs):,} runs"
            bar.update(task, completed=source.files_read, rate=rate, description=name)


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
        "undated_runs": source.undated,
        "skipped": [{"file": file, "part": part, "reason": reason} for file, part, reason in source.skipped],
        "failures": tally.failures,
        "seconds": round(seconds, 3),
    }


def _summary(source: _Source, tally: Tally, seconds: float) -> None:
    rate = source.events / max(seconds, 1e-9)
    say(f"{len(source.runs):,} runs, {source.events:,} events in {seconds:.1f} s ({rate:,.0f} events/s)")
    _report(tally)
    if source.undated:
        from services.importers.run import CLOCK_BASE

        which = "" if source.undated == len(source.runs) else f" of {source.undated:,} runs"
        say(f"no times in the source{which}: dated from {CLOCK_BASE:%Y-%m-%d}; `--start now` dates them from now")
    if source.skipped:
        reasons = Counter(reason for _, _, reason in source.skipped)
        print_table(("skipped#", "why~"), [(count, reason) for reason, count in reasons.items()])
    if source.runs:
        hint(f"look at one: refold events --run {source.runs[0]}")
