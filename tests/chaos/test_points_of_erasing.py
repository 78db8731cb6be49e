"""An erasure is under way, and an archiver or a projector dies, or sleeps, at every point at which it waits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.rounds import every_point
from tests.soak import soak


@soak
@pytest.mark.chaos
@pytest.mark.timeout(2400)
@pytest.mark.parametrize(
    ("world", "store", "signum", "stride"),
    [
        ("erasing_world", "sqlite", "SIGKILL", 1),
        ("erasing_world", "sqlite", "SIGSTOP", 7),
        ("erasing_world", "postgresql", "SIGKILL", 4),
        ("erasing_archiver_world", "sqlite", "SIGKILL", 1),
        ("erasing_archiver_world", "sqlite", "SIGSTOP", 9),
        ("erasing_archiver_world", "postgresql", "SIGKILL", 5),
    ],
)
def test_points_of_erasing(
    tmp_path: Path, world: str, store: str, signum: str, stride: int, request: pytest.FixtureRequest
) -> None:
    """Another one sees it through; nothing is half erased for ever, and nothing else is lost."""
    server = request.getfixturevalue("postgres") if store == "postgresql" else None
    every_point(world, store, signum, tmp_path, server.url if server else "", stride=stride)
