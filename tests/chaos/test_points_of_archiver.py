"""The archiver dies, or sleeps, at every point at which it waits for Redis or for its store."""

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
        ("sqlite", "SIGSTOP", 9),
        pytest.param("postgresql", "SIGKILL", 5, marks=soak),
        pytest.param("postgresql", "SIGSTOP", 31, marks=soak),
    ],
)
def test_points_of_archiver(
    tmp_path: Path, store: str, signum: str, stride: int, request: pytest.FixtureRequest
) -> None:
    """C9, invariant 1: another one goes on, what was acknowledged is there, positions have no gap."""
    server = request.getfixturevalue("postgres") if store == "postgresql" else None
    every_point("archiver_world", store, signum, tmp_path, server.url if server else "", stride=stride)
