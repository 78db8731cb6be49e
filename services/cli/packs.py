"""``refold pack``: what a scope has learned as one file, and such a file taken in."""

from __future__ import annotations

import io
import json
import os
import sys
import zipfile
from pathlib import Path
from typing import Annotated, Any

import typer

from services.cli.client import Client, connected
from services.cli.errors import UNREACHABLE, USAGE, CliError
from services.cli.options import AsJson, Data, Limit, OfAgent, OfOrg, OfUser, Url
from services.cli.output import hint, print_json, print_lines, print_table, progress, say
from services.cli.read import second

packs = typer.Typer(no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands of this group."""
    app.add_typer(packs, name="pack", help="Take what was learned to another place, as a file.")


@packs.command("export")
def export(
    user: OfUser = None,
    agent: OfAgent = None,
    org: OfOrg = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Else standard output.")] = None,
    data: Data = None,
    url: Url = None,
) -> None:
    """Write what a scope has learned into a zip.

    Its memories, its beliefs with their evidence, its runs' notes and settlements.
    """
    whose = _one(user, agent, org)
    if out is None and sys.stdout.isatty():
        raise CliError("a zip is nothing for a terminal: give --out FILE", USAGE)
    with connected(data, url) as client:
        answer = client.request("GET", "/v1/packs/export", params=whose)
        raw = answer.content if answer.is_success else client.document(answer)
    if out is None:
        sys.stdout.buffer.write(raw)
        sys.stdout.buffer.flush()
        return
    partly = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        partly.write_bytes(raw)
        partly.replace(out)  # whole, or not at all
    except OSError as error:
        partly.unlink(missing_ok=True)
        raise CliError(f"cannot write {out}: {error.strerror}", USAGE) from error
    hint(f"{out}: {len(raw):,} bytes, pack {answer.headers['x-refold-pack'][:12]}: {_held(raw)}")


@packs.command("import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `refold pack export` wrote.")],
    user: Annotated[str | None, typer.Option("--user", metavar="NAME", help="For this user, else its own.")] = None,
    agent: Annotated[str | None, typer.Option("--agent", metavar="NAME", help="For this agent, else its own.")] = None,
    confidence: Annotated[
        float | None, typer.Option(metavar="N", min=0, max=1, help="Confidences are multiplied with it; default 0.8.")
    ] = None,
    data: Data = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Take a pack in, and say what became of each item.

    Importing it again changes nothing, and finishes what was broken off.
    """
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise CliError(f"cannot read {file}: {error.strerror}", USAGE) from error
    with connected(data, url) as client:
        report = _imported(client, raw, {"user": user, "agent": agent, "confidence": confidence})
    if as_json:
        print_json(report)
    else:
        _print_report(report)


@packs.command("list")
def list_(
    user: OfUser = None,
    agent: OfAgent = None,
    org: OfOrg = False,
    limit: Limit = None,
    data: Data = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List the packs that were imported into a scope.

    With --json also the notes and settlements that they brought.
    """
    with connected(data, url) as client:
        found = list(client.items("/v1/packs", limit, **_one(user, agent, org)))
    if as_json:
        print_lines(found)
        return
    columns = ("pack", "imported", "from", "confidence#", "what~")
    print_table(columns, list(map(_row, found)), empty="nothing was imported yet")


def _row(one: dict[str, Any]) -> tuple[Any, ...]:
    """An import on a line; anybody may publish that there was one, and leave out what Refold tells of its own."""
    whence = one.get("origin", {}).get("scope", "")
    return one["pack"][:12], second(one["time"]), whence, one.get("confidence", ""), _done(one.get("done", {}))


def _held(raw: bytes) -> str:
    """How many items of each sort a pack holds."""
    with zipfile.ZipFile(io.BytesIO(raw)) as pack:
        files: dict[str, Any] = json.loads(pack.read("manifest.json"))["files"]
    held = [f"{name.removesuffix('.jsonl')}: {file['items']:,}" for name, file in files.items() if file["items"]]
    return ", ".join(held) or "empty, nothing was learned there yet"


def _imported(client: Client, raw: bytes, params: dict[str, Any]) -> dict[str, Any]:
    """The report of an import. Raises CliError where it ends with a problem, or breaks off."""
    told: dict[str, Any] = {}
    with progress("items") as bar:
        task = bar.add_task("importing", total=None, rate="-")
        rest = b""
        for chunk in client.stream("/v1/packs", "POST", content=raw, progress=True, **params):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                told = json.loads(line)
                if "progress" in told:
                    far = told["progress"]
                    bar.update(task, description=far["phase"], completed=far["done"], total=far["total"])
    if "problem" in told:
        raise CliError(told["problem"]["detail"], UNREACHABLE)
    if "report" not in told:
        raise CliError("the answer broke off: import the pack again, what is in already is not doubled", UNREACHABLE)
    report: dict[str, Any] = told["report"]
    return report


def _print_report(report: dict[str, Any]) -> None:
    if report["imported_before"]:
        say(f"imported before, at {second(report['time'])}: nothing was changed", "yellow")
    rows = [
        (sort, number, _fates(report["done"].get(sort, {})))
        for sort, number in sorted(report["counts"].items())
    ]  # fmt: skip
    print_table(("what", "in the pack#", "became~"), rows, title=f"Pack of {report['origin']['scope']}")
    if refused := report.get("refused", []):
        shown = [(one["sort"], one["item"], one["reason"], one["detail"]) for one in refused]
        print_table(("sort", "item", "reason", "detail~"), shown, title="Refused")
    hint(f"into {report['scope']}, confidences x {report['confidence']:g}")


def _done(done: dict[str, dict[str, int]]) -> str:
    return "; ".join(f"{sort}: {_fates(fates)}" for sort, fates in sorted(done.items()) if fates)


def _fates(fates: dict[str, int]) -> str:
    return ", ".join(f"{number:,} {what}" for what, number in sorted(fates.items()))


def _one(user: str | None, agent: str | None, org: bool) -> dict[str, str]:
    """The one scope that is named. Raises CliError for none and for several."""
    named = {name: value for name, value in (("user", user), ("agent", agent)) if value}
    if len(named) + org != 1:
        raise CliError("say whose: one of --user NAME, --agent NAME and --org", USAGE)
    return named
