"""What the door costs: JSON text of a batch to admitted events, against the parsing and hashing that cannot be saved.

The peer reads the same text with orjson, writes each event's data, and takes one BLAKE2b of it; it checks nothing.
Both sides run in turn, the best of several rounds is taken. Run: ``python -m benchmarks.door``.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import orjson

from events.door import admit_all, read_json
from events.event import Event

ROUNDS = 5


def make_events(count: int) -> list[dict[str, Any]]:
    """Tool calls of ~350 bytes, as an agent publishes them."""
    return [
        {
            "specversion": "1.0",
            "id": f"0198b6a0-7b1c-7000-8000-{number:012d}",
            "type": "tool.called",
            "source": "agent/coder",
            "time": "2026-03-01T10:00:00.123Z",
            "agent": "coder",
            "user": "u1",
            "session": "s1",
            "task": f"t{number % 100}",
            "run": f"r{number % 100}",
            "seq": number // 100 + 1,
            "data": {
                "call_id": f"c{number}",
                "name": "search_flights",
                "arguments": {"from": "SFO", "to": "JFK", "date": "2026-05-20", "seats": number % 9},
            },
        }
        for number in range(count)
    ]


def spellings(events: list[dict[str, Any]]) -> dict[str, bytes]:
    """The same batch as different publishers write it, and what makes the door look twice."""
    nulls = [event | {"data": event["data"] | {"arguments": {"from": None}}} for event in events]
    accents = [event | {"user": "José"} for event in events]
    return {
        "compact": orjson.dumps(events),
        "spaced": json.dumps(events).encode(),
        "with null": orjson.dumps(nulls),
        "with \\u escapes": json.dumps(accents).encode(),
    }


def door(body: bytes) -> int:
    """Through the door."""
    outcomes = admit_all(read_json(body))
    return sum(isinstance(outcome, Event) for outcome in outcomes)


def peer(body: bytes) -> int:
    """Parse, write, hash; no check, no envelope, no key."""
    digests = [blake2b(orjson.dumps(event["data"]), digest_size=16).hexdigest() for event in orjson.loads(body)]
    return len(digests)


def microseconds(work: Callable[[bytes], int], body: bytes, count: int) -> float:
    """Time of one round, an event."""
    started = time.perf_counter()
    done = work(body)
    elapsed = time.perf_counter() - started
    assert done == count, f"{done} of {count} events"
    return elapsed / count * 1e6


def main() -> None:
    """Print microseconds an event and the ratio for each spelling."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=10_000, help="events in the batch")
    count = parser.parse_args().events
    for name, body in spellings(make_events(count)).items():
        rounds = [(microseconds(door, body, count), microseconds(peer, body, count)) for _ in range(ROUNDS)]
        mine, theirs = min(mine for mine, _ in rounds), min(theirs for _, theirs in rounds)
        print(
            f"door, {name:15s} {len(body) // count:4d} B: {mine:6.1f} us an event, "
            f"parse + write + hash {theirs:5.1f} us, ratio {theirs / mine:.2f}"
        )


if __name__ == "__main__":
    main()
