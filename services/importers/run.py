"""One imported run, and the writer that gives its events ids, numbers and times."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any
from uuid import UUID

from events.door import MAX_EVENT_BYTES

CLOCK_BASE = datetime(2024, 1, 1, tzinfo=UTC)
"""Where the synthetic clock starts for sources without times; message n is n seconds later."""

_DATA_BYTES = MAX_EVENT_BYTES - 4096
_SHORTER = (256_000, 64_000, 16_000, 4_000, 1_000)


@dataclass(frozen=True)
class ImportedRun:
    """All raw events of one run, in order, ready for the door. ``synthetic``: its source has no times."""

    run: str
    events: list[dict[str, Any]]
    synthetic: bool = False

    def starting_at(self, start: datetime) -> ImportedRun:
        """The run with its synthetic clock begun at ``start``; a run with real times as it is.

        Ids stay, and times are no part of what tells a duplicate: importing again with another start changes nothing.
        """
        if not self.synthetic:
            return self
        shift = start.astimezone(UTC) - CLOCK_BASE
        moved = [{**event, "time": _rfc3339(datetime.fromisoformat(event["time"]) + shift)} for event in self.events]
        return ImportedRun(self.run, moved, synthetic=True)


@dataclass(frozen=True)
class Skipped:
    """A part of a source that holds no run, and why."""

    part: str
    reason: str


Imported = ImportedRun | Skipped


@dataclass
class RunWriter:
    """Collects the events of one run.

    Ids have the UUIDv7 layout: the event's time, its index (so that ids of one millisecond keep their order), and a
    hash of (format, run, index) in place of random bits.
    """

    format: str
    run: str
    agent: str
    user: str = ""
    events: list[dict[str, Any]] = field(default_factory=list)
    _now: datetime = CLOCK_BASE
    _synthetic: bool = True
    _seq: int = 0

    def tick(self, message: int) -> None:
        """Set the synthetic clock to message number ``message``; its events follow one millisecond apart."""
        self._now, self._synthetic = CLOCK_BASE + timedelta(seconds=message), True

    def at(self, time: datetime | None) -> None:
        """Set the clock to a time of the source; None leaves it where it stands."""
        if time is not None:
            self._now, self._synthetic = time, False

    def add(self, type: str, data: dict[str, Any], *, agent: str = "", counted: bool = True) -> None:
        """Append an event. Absent (None or empty text) members of ``data`` are left out, over-long texts shortened.

        ``counted=False`` leaves out ``seq``: for an event whose key is not the run's task.
        """
        index = len(self.events)
        event: dict[str, Any] = {
            "id": event_id(self.format, self.run, index, self._now),
            "type": type,
            "source": f"import/{self.format}",
            "time": _rfc3339(self._now),
            "agent": agent or self.agent,
            "session": self.run,
            "run": self.run,
            "data": fit({name: value for name, value in data.items() if value is not None and value != ""}),
        }
        if self.user:
            event["user"] = self.user
        if counted:
            self._seq += 1
            event["seq"] = self._seq
        self.events.append(event)
        if self._synthetic:
            self._now += timedelta(milliseconds=1)

    def done(self) -> ImportedRun:
        """The finished run."""
        return ImportedRun(self.run, self.events, self._synthetic)


def _rfc3339(time: datetime) -> str:
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def event_id(format: str, run: str, index: int, time: datetime) -> str:
    """The deterministic id of event ``index`` of a run."""
    millis = max(0, int(time.timestamp() * 1000)) & (1 << 48) - 1
    seed = "\x1f".join((format, run, str(index))).encode("utf-8", "surrogatepass")
    noise = int.from_bytes(blake2b(seed, digest_size=8).digest(), "big") & (1 << 62) - 1
    return str(UUID(int=millis << 80 | 7 << 76 | (index & 0xFFF) << 64 | 2 << 62 | noise))


def run_id(label: str, digest: str) -> str:
    """A run's id: what a reader recognises it by, and its content digest, which tells two of one name apart."""
    readable = "".join(char if char.isprintable() and char not in " /\\?#%" else "-" for char in label.strip())
    return f"{readable[:160] or 'run'}-{digest[:10]}"


def addressed(content: Any) -> dict[str, Any] | None:
    """Content by address, for ``run.started``; None when there is none."""
    if not content:
        return None
    canonical = json.dumps(content, sort_keys=True, ensure_ascii=True).encode()
    return {"digest": blake2b(canonical, digest_size=16).hexdigest(), "content": content}


def fit(data: dict[str, Any]) -> dict[str, Any]:
    """The data as they are when an event can hold them, else with long texts cut to head, tail and digest."""
    if _size(data) <= _DATA_BYTES:
        return data
    for limit in _SHORTER:
        shorter: dict[str, Any] = _shorten(data, limit)
        if _size(shorter) <= _DATA_BYTES:
            return shorter
    return data


def _size(data: Any) -> int:
    return len(json.dumps(data, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def _shorten(value: Any, limit: int) -> Any:
    if isinstance(value, str) and len(value) > limit:
        half, digest = limit // 2, blake2b(value.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        return f"{value[:half]}\n[{len(value) - 2 * half} characters left out, blake2b {digest}]\n{value[-half:]}"
    if isinstance(value, dict):
        return {name: _shorten(item, limit) for name, item in value.items()}
    if isinstance(value, list):
        return [_shorten(item, limit) for item in value]
    return value
