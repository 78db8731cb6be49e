"""The process that runs the reactors dies, or sleeps past its leases, at every point at which they wait."""

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
        ("sqlite", "SIGKILL", 40),
        ("sqlite", "SIGSTOP", 99),
        pytest.param("postgresql", "SIGKILL", 70, marks=soak),
        pytest.param("postgresql", "SIGSTOP", 130, marks=soak),
    ],
)
def test_points_of_reactors(
    tmp_path: Path, store: str, signum: str, stride: int, request: pytest.FixtureRequest
) -> None:
    """C5, C8, C15, C43, invariant 2: each ended run leads to its derived events, once; no checkpoint goes back."""
    server = request.getfixturevalue("postgres") if store == "postgresql" else None
    every_point("reactor_world", store, signum, tmp_path, server.url if server else "", stride=stride)
