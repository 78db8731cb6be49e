"""The address of a Redis Cluster: several nodes in one URL, in the backend and in the SDK."""

from __future__ import annotations

import pytest
from refold.nodes import Nodes

from events.errors import SetupError
from events.log.address import node_url, node_urls
from services.settings import Settings

TWO = "rediss://me:s%2Fcret@one:6379, two:6380/0?ssl_ca_certs=ca.pem"


@pytest.mark.parametrize(
    ("url", "nodes"),
    [
        ("redis://localhost:6379/0", ["redis://localhost:6379/0"]),
        ("unix:///tmp/redis.sock", ["unix:///tmp/redis.sock"]),
        ("redis://:secret@one,two", ["redis://:secret@one", "redis://:secret@two"]),
        ("redis://[::1]:7000,[::2]:7001/0", ["redis://[::1]:7000/0", "redis://[::2]:7001/0"]),
        (
            TWO,
            [
                "rediss://me:s%2Fcret@one:6379/0?ssl_ca_certs=ca.pem",
                "rediss://me:s%2Fcret@two:6380/0?ssl_ca_certs=ca.pem",
            ],
        ),
    ],
)
def test_everything_but_the_host_is_the_same_for_all_nodes(url: str, nodes: list[str]) -> None:
    assert node_urls(url) == nodes
    assert Settings.read({"REDIS_URL": url}).redis_url == url


def test_a_node_that_was_not_named_is_reached_in_the_same_way() -> None:
    assert node_url(TWO, "three", 7000) == "rediss://me:s%2Fcret@three:7000/0?ssl_ca_certs=ca.pem"
    assert node_url("redis://one", "fe80::1", 7000) == "redis://[fe80::1]:7000"


@pytest.mark.parametrize("url", ["redis://", "redis://one,", "redis://,one", "http://one,two", "one:6379,two:6379"])
def test_what_names_no_node_is_refused(url: str) -> None:
    with pytest.raises(SetupError, match=r"REDIS_URL is .*redis://one:6379,two:6379/0"):
        Settings.read({"REDIS_URL": url})


def test_the_sdk_follows_the_inbox_and_comes_back_to_what_was_named() -> None:
    nodes = Nodes(TWO)
    assert nodes.url == node_urls(TWO)[0]
    assert nodes.follow("three", 7000) == nodes.url == node_url(TWO, "three", 7000)
    assert nodes.follow("fe80::1", 7000) == node_url(TWO, "fe80::1", 7000)
    assert [nodes.another() for _ in range(3)] == [node_urls(TWO)[n] for n in (1, 0, 1)]
    assert Nodes("unix:///tmp/redis.sock").another() == "unix:///tmp/redis.sock"
    single = Nodes("redis://one:6379/0")
    single.follow("two", 1)
    assert single.another() == "redis://one:6379/0"
