"""What the owner of a partition says of its work, so that any process can tell progress from standstill.

Written with the renewal of leases, by a task that goes on though a fold hangs; on the database's clock. It decides
nothing: an owner that says nothing is fenced by the same rules as any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import NamedTuple

from sqlalchemy import Connection, TextClause, text

from events.clock import DATABASE_NOW_MS

LONGEST_REASON = 500

Unit = tuple[str, int]
"""Name of a lease and partition."""


class Report(NamedTuple):
    """``moved``: positions were folded since the last report. ``waits_for``: why it waits; empty while it works."""

    moved: bool
    events_per_s: float
    waits_for: str


class _Seen(NamedTuple):
    folded: int
    at_s: float
    report: Report


@dataclass
class Reporter:
    """Makes reports of what was folded between two looks; nothing where there is nothing new to say."""

    _seen: dict[Unit, _Seen] = field(default_factory=dict)

    def look(self, units: Iterable[tuple[Unit, int, str]], now_s: float | None = None) -> dict[Unit, Report]:
        """``units``: each with the positions that were folded since it is ours, and what it waits for."""
        now_s = monotonic() if now_s is None else now_s
        before, self._seen = self._seen, {}
        reports = {}
        for unit, folded, waits_for in units:
            last = before.get(unit)
            if last is None or last.folded > folded:
                # ours since the last look
                report, news = Report(folded > 0, 0.0, waits_for), True
            else:
                seconds = now_s - last.at_s
                rate = (folded - last.folded) / seconds if seconds else 0.0
                report = Report(folded > last.folded, rate, waits_for)
                news = report.moved or report != last.report
            self._seen[unit] = _Seen(folded, now_s, report)
            if news:
                reports[unit] = report
        return reports


class Holding(NamedTuple):
    """A partition in somebody's hands, as the store tells. ``still_s``: seconds since it got on; None: never said."""

    owner: str
    still_s: float | None
    events_per_s: float
    waits_for: str


def write(conn: Connection, owner: str, reports: Mapping[Unit, Report]) -> None:
    """Record reports of ``owner``."""
    if not reports:
        return
    statement = _sql(
        conn,
        "INSERT INTO fold_reports (name, partition, owner, moved_ms, events_per_s, waits_for) "
        "VALUES (:name, :partition, :owner, {now}, :events_per_s, :waits_for) "
        "ON CONFLICT (name, partition) DO UPDATE SET owner = excluded.owner, "
        "events_per_s = excluded.events_per_s, waits_for = excluded.waits_for, "
        "moved_ms = CASE WHEN fold_reports.owner = excluded.owner AND :moved = 0 "
        "THEN fold_reports.moved_ms ELSE excluded.moved_ms END",
    )
    rows = [
        {
            "name": name, "partition": partition, "owner": owner, "moved": int(report.moved),
            "events_per_s": report.events_per_s, "waits_for": report.waits_for[:LONGEST_REASON],
        }
        for (name, partition), report in sorted(reports.items())
    ]  # fmt: skip
    conn.execute(statement, rows)


def clear(conn: Connection) -> None:
    """Forget reports of partitions that nobody holds."""
    conn.execute(
        text(
            "DELETE FROM fold_reports WHERE NOT EXISTS (SELECT 1 FROM leases "
            "WHERE leases.name = fold_reports.name AND leases.partition = fold_reports.partition)"
        )
    )


def holdings(conn: Connection, name: str) -> dict[int, Holding]:
    """The partitions of a generation that somebody holds now."""
    statement = _sql(
        conn,
        "SELECT l.partition, l.owner, {now} - r.moved_ms, r.events_per_s, r.waits_for FROM leases l "
        "LEFT JOIN fold_reports r ON r.name = l.name AND r.partition = l.partition AND r.owner = l.owner "
        "WHERE l.name = :name AND l.expires_ms >= {now}",
    )
    return {
        partition: Holding(owner, None if still_ms is None else still_ms / 1000, events_per_s or 0.0, waits_for or "")
        for partition, owner, still_ms, events_per_s, waits_for in conn.execute(statement, {"name": name})
    }


def _sql(conn: Connection, statement: str) -> TextClause:
    return text(statement.format(now=DATABASE_NOW_MS[conn.dialect.name]))
