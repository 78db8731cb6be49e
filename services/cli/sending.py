"""Sending events to the instance in batches: an outcome for each event, whatever happens on the way."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from events import strict_json
from events.errors import Refused
from services.cli.client import Client, problem_text
from services.cli.errors import UNREACHABLE, CliError

BATCH_EVENTS = 500
BATCH_BYTES = 4 << 20
TAKEN = ("stored", "duplicate", "accepted")
PATIENCE_S = 60.0
"""How long to go on trying while the instance is away or its log is closed; repeated events are duplicates."""

Outcome = dict[str, Any]


class Line(NamedTuple):
    """One event as JSON text. ``where`` it stands in its source; ``refusal``: it is no JSON and need not be sent."""

    text: bytes
    where: str = ""
    refusal: Outcome | None = None


def read_line(text: bytes, where: str) -> Line:
    """A line that should be one event. What cannot be told apart from its neighbours in a batch is refused here."""
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        try:
            strict_json.loads(text)
        except Refused as refusal:
            if refusal.code == "bad_json":
                message = str(refusal).replace(" at line 1 column ", " at column ")
                return Line(text, where, _refused(refusal.code, message))
    return Line(text, where)


def _refused(code: str, message: str) -> Outcome:
    return {"id": "", "status": "refused", "code": code, "message": message}


@dataclass
class Tally:
    """What became of the events sent so far."""

    counts: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    failures: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Count an outcome; remember one that is a failure (the first hundred)."""
        status = str(outcome.get("status"))
        self.counts[status] += 1
        if outcome.get("note"):
            self.notes[str(outcome["note"])] += 1
        if status not in TAKEN and len(self.failures) < 100:
            self.failures.append(outcome)

    @property
    def failed(self) -> int:
        """How many events were not taken."""
        return self.counts.total() - self.taken

    @property
    def taken(self) -> int:
        """How many events the instance has."""
        return sum(self.counts[status] for status in TAKEN)


def batches(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """Events in batches that a request can hold."""
    batch: list[Line] = []
    size = 0
    for line in lines:
        if batch and (len(batch) >= BATCH_EVENTS or size + len(line.text) > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(line)
        size += len(line.text)
    if batch:
        yield batch


def send(client: Client, batch: list[Line], *, ack: str, waiting: Callable[[str], None]) -> list[Outcome]:
    """Publish a batch; an outcome for each line. ``waiting`` is told why when it must be tried again.

    Raises CliError when the instance stays away for PATIENCE_S.
    """
    texts = [line.text for line in batch if line.refusal is None]
    answers = iter(_send(client, texts, ack, waiting) if texts else [])
    return [_placed(line.refusal or next(answers), line.where) for line in batch]


def _placed(outcome: Outcome, where: str) -> Outcome:
    """With the place in the source, where the outcome is a failure."""
    return outcome if outcome.get("status") in TAKEN or not where else {**outcome, "where": where}


def _send(client: Client, batch: list[bytes], ack: str, waiting: Callable[[str], None]) -> list[Outcome]:
    deadline, pause = time.monotonic() + PATIENCE_S, 0.2
    while True:
        try:
            return _send_once(client, batch, ack)
        except CliError as error:
            if error.exit_code != UNREACHABLE or time.monotonic() + pause > deadline:
                raise
            waiting(str(error))
        time.sleep(pause)
        pause = min(pause * 2, 5.0)


def _send_once(client: Client, batch: list[bytes], ack: str) -> list[Outcome]:
    response = client.request(
        "POST",
        "/v1/events",
        params={"ack": ack},
        content=b"[" + b",".join(batch) + b"]",
        headers={"content-type": "application/json"},
    )
    if response.status_code >= 500:
        raise CliError(problem_text(response), UNREACHABLE)
    outcomes = _outcomes(response.json() if response.headers.get("content-type", "").endswith("json") else None)
    if len(outcomes) == len(batch):
        return outcomes
    if len(batch) == 1:
        return [_refused(f"http_{response.status_code}", problem_text(response))]
    # the body as a whole was refused: halve until the event that is to blame stands alone
    middle = len(batch) // 2
    return _send_once(client, batch[:middle], ack) + _send_once(client, batch[middle:], ack)


def _outcomes(answer: Any) -> list[Outcome]:
    found = answer.get("outcomes") if isinstance(answer, dict) else None
    return found if isinstance(found, list) else []
