"""Golden histories: small logs of our own making, and the rows that every projection makes of them, for ever.

A change of these rows is a change of meaning: raise the projection's version, look at the difference, and write the
rows anew with ``python -m tests.unit.test_golden_histories``.
"""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from projections.registry import PROJECTIONS
from tests.unit.fold_runner import fold

HISTORIES = Path(__file__).parent.parent / "golden" / "histories"
NAMES = sorted(path.stem for path in HISTORIES.glob("*.jsonl"))


def rows_of(name: str) -> dict[str, list[object]]:
    """Projection -> its rows, as the golden file has them."""
    raws = [orjson.loads(line) for line in (HISTORIES / f"{name}.jsonl").read_bytes().splitlines()]
    dumps = {projection.name: fold(projection, raws).dump() for projection in PROJECTIONS.values()}
    return {of: [orjson.loads(line) for line in dump.splitlines()] for of, dump in dumps.items() if dump}


def test_there_are_histories_for_every_projection() -> None:
    told = {projection for name in NAMES for projection in rows_of(name)}
    assert told == set(PROJECTIONS)


@pytest.mark.parametrize("name", NAMES)
def test_a_golden_history_makes_the_same_rows_as_ever(name: str) -> None:
    expected = orjson.loads((HISTORIES / f"{name}.rows.json").read_bytes())
    assert rows_of(name) == expected


def write_anew() -> None:
    """Write the rows that the code makes today."""
    for name in NAMES:
        text = orjson.dumps(rows_of(name), option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS)
        (HISTORIES / f"{name}.rows.json").write_bytes(text + b"\n")


if __name__ == "__main__":
    write_anew()
