"""``refold restore``: refill a Redis from the archive, and say what was found and done in each partition."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from services.cli.errors import USAGE, CliError
from services.cli.machine import DataHere, settings_of, setup_errors
from services.cli.options import AsJson
from services.cli.output import print_json, print_table, say

if TYPE_CHECKING:
    from events.database import Database
    from events.log.client import AnyRedis
    from services.settings import Settings


def register(app: typer.Typer) -> None:
    """Add the command of this group."""
    app.command("restore")(restore)


def restore(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Look, and change nothing.")] = False,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Take a Redis from another store's log; what only that Redis held is lost.")
    ] = False,
    data: DataHere = None,
    as_json: AsJson = False,
) -> None:
    """Refill an empty or replaced Redis from the archive.

    Whenever Redis has lost something the backend opens the log by itself, and nothing acknowledged is lost either way.
    This does it now, tells what it found, and lets Redis know again what it had forgotten. It may run at any time, and
    again. Here it joins the instance of the data folder; elsewhere it goes by REDIS_URL and REFOLD_DATABASE_URL.
    """
    if dry_run and adopt:
        raise CliError("--dry-run changes nothing, --adopt deletes: give one of them", USAGE)
    settings = settings_of(data=data)
    with setup_errors():
        report = asyncio.run(_run(settings, dry_run=dry_run, adopting=adopt))
    if as_json:
        print_json({"dry_run": dry_run, "deleted_keys": report.deleted, "partitions": report.rows})
    else:
        _print(report, dry_run)


@dataclass(frozen=True)
class _Report:
    deleted: int
    rows: list[dict[str, Any]]


async def _run(settings: Settings, *, dry_run: bool, adopting: bool) -> _Report:
    from events.archive import store
    from events.database import Stores
    from events.log.client import connect
    from events.log.restore import adopt
    from services.cli.doctor import partitions
    from services.worker import joined

    settings = joined(settings)
    count = partitions(settings)
    if count is None:
        raise CliError(f"there is no log in {settings.stores_url}: start `refold up` or a worker on it first", USAGE)
    redis = await connect(settings.redis_url)
    db = Stores(settings.stores_url).log()
    try:
        await db.read(store.log_id)
        deleted = await adopt(redis, db) if adopting else 0
        work = _examined if dry_run else _restored
        return _Report(deleted, await work(redis, db, range(count)))
    finally:
        await redis.aclose()
        await asyncio.to_thread(db.close)


async def _examined(redis: AnyRedis, db: Database, partitions: Sequence[int]) -> list[dict[str, Any]]:
    from events.log.restore import examine

    return [
        {
            "partition": one.partition, "open": not one.trouble, "found": one.trouble or "sound",
            "watermark": str(one.watermark), "remembered": one.remembered,
        }
        for one in await examine(redis, db, partitions)
    ]  # fmt: skip


async def _restored(redis: AnyRedis, db: Database, partitions: Sequence[int]) -> list[dict[str, Any]]:
    from events.log.restore import restore as refill

    return [
        {
            "partition": one.opened.partition, "open": True, "found": one.opened.why or "sound",
            "ended": None if one.opened.ended is None else str(one.opened.ended),
            "watermark": str(one.opened.watermark), "carried_over": one.opened.survivors,
            "refused": one.opened.refused, "foreign": one.opened.foreign, "remembered": one.remembered,
        }
        for one in await refill(redis, db, partitions)
    ]  # fmt: skip


_SEEN = {"partition": "partition#", "open": "open", "found": "found~", "watermark": "archived up to",
         "remembered": "remembers#"}  # fmt: skip
_DONE = {"partition": "partition#", "found": "found~", "watermark": "goes on from", "carried_over": "carried over#",
         "refused": "refused#", "remembered": "remembered#"}  # fmt: skip
"""Members of a row, and their titles."""


def _print(report: _Report, dry_run: bool) -> None:
    if report.deleted:
        say(f"{report.deleted:,} keys of another store's log deleted", style="yellow")
    titles = _SEEN if dry_run else _DONE
    print_table(tuple(titles.values()), [tuple(_shown(row[name]) for name in titles) for row in report.rows])
    if any(row.get("refused") for row in report.rows):
        say("what was refused, and why: `refold refused`")


def _shown(cell: Any) -> Any:
    """A position at the start of an epoch, in words."""
    return f"{cell.removesuffix('--1')} (empty)" if isinstance(cell, str) and cell.endswith("--1") else cell
