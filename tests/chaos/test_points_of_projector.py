"""A projector dies, or sleeps past its lease, at every point at which it waits for its stores."""

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
        ("sqlite", "SIGSTOP", 7),
        pytest.param("postgresql", "SIGKILL", 4, marks=soak),
        pytest.param("postgresql", "SIGSTOP", 23, marks=soak),
    ],
)
def test_points_of_projector(
    tmp_path: Path, store: str, signum: str, stride: int, request: pytest.FixtureRequest
) -> None:
    """C2, invariants 2 and 5: another one goes on, a woken one is fenced, and each event took effect once."""
    server = request.getfixturevalue("postgres") if store == "postgresql" else None
    every_point("projector_world", store, signum, tmp_path, server.url if server else "", stride=stride)
