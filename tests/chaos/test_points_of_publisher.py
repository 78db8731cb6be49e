"""A publisher dies, or sleeps, at every point of opening the log, appending and waiting for the archive."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.rounds import every_point
from tests.soak import soak


@pytest.mark.chaos
@pytest.mark.timeout(2400)
@pytest.mark.parametrize(
    ("store", "signum", "stride"),
    [
        ("sqlite", "SIGKILL", 1),
        ("sqlite", "SIGSTOP", 17),
        pytest.param("postgresql", "SIGKILL", 5, marks=soak),
        pytest.param("postgresql", "SIGSTOP", 61, marks=soak),
    ],
)
def test_points_of_publisher(
    tmp_path: Path, store: str, signum: str, stride: int, request: pytest.FixtureRequest
) -> None:
    """C13, invariants 1 and 2: whoever sends its events again finds each of them stored once, in their order."""
    server = request.getfixturevalue("postgres") if store == "postgresql" else None
    every_point("publisher_world", store, signum, tmp_path, server.url if server else "", stride=stride)
