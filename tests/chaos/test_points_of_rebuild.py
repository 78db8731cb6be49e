"""A builder dies, or sleeps past its lease, at every point of a rebuild: folding, verifying, swapping."""

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
        ("sqlite", "SIGKILL", 3),
        ("sqlite", "SIGSTOP", 29),
        pytest.param("postgresql", "SIGKILL", 9, marks=soak),
        pytest.param("postgresql", "SIGSTOP", 41, marks=soak),
    ],
)
def test_points_of_rebuild(
    tmp_path: Path, store: str, signum: str, stride: int, request: pytest.FixtureRequest
) -> None:
    """Invariants 2 and 6: folding and reading go on, another builder continues, a woken one swaps nothing."""
    server = request.getfixturevalue("postgres") if store == "postgresql" else None
    every_point("rebuild_world", store, signum, tmp_path, server.url if server else "", stride=stride)
