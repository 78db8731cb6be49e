"""Unit tests share their machine with slower ones: no time limit an example, the suite's own limit holds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.sdk_backend import FakeBackend

settings.register_profile("shared", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")


@pytest.fixture
def backend() -> Iterator[FakeBackend]:
    """A backend that answers the SDK over HTTP, as each test tells it to."""
    server = FakeBackend()
    yield server
    server.close()
