"""The server and the stores of a deployment, for tests that run parts of the backend on them."""

from __future__ import annotations

import pytest

from events.database import Stores
from tests.conftest import Deployment
from tests.redis_cluster import AnyServer


@pytest.fixture
def server(deployment: Deployment) -> AnyServer:
    return deployment.redis


@pytest.fixture
def stores(deployment: Deployment) -> Stores:
    return deployment.stores
