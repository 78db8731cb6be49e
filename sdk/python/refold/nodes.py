"""Where the inbox is: on the Redis that is named, or on one node of the Redis Cluster of which some nodes are named."""

from __future__ import annotations

from urllib.parse import urlsplit

HOPS = 4
"""How often one call follows the inbox to another node."""


class Nodes:
    """The node to talk to now; ``url`` names it. At first the first one named.

    >>> nodes = Nodes("redis://:secret@one:6379,two:6379/0")
    >>> nodes.url, nodes.follow("three", 7000), nodes.another(), nodes.another()
    ('redis://:secret@one:6379/0', 'redis://:secret@three:7000/0', 'redis://:secret@two:6379/0', 'redis://:secret@one:6379/0')
    """

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self._user, self._at, hosts = self._parts.netloc.rpartition("@")
        self._named = [self._url(host.strip()) for host in hosts.split(",")] if "," in hosts else [url]
        self._turn = 0
        self.url = self._named[0]

    def follow(self, host: str, port: int) -> str:
        """The node that another one has named as the inbox's; its URL."""
        self.url = self._url(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        return self.url

    def another(self) -> str:
        """The next one of those that are named, where this one does not answer; its URL."""
        self._turn = (self._turn + 1) % len(self._named)
        self.url = self._named[self._turn]
        return self.url

    def _url(self, host: str) -> str:
        return self._parts._replace(netloc=f"{self._user}{self._at}{host}").geturl()
