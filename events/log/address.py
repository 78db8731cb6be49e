"""The address of a Redis: one URL, in which a cluster may be named by several of its nodes.

``redis://user:password@one:6379,two:6379/0`` names two nodes; scheme, user, password and options are those of all.
"""

from __future__ import annotations

from urllib.parse import urlsplit


def node_urls(url: str) -> list[str]:
    """The URL of each node that an address names; ``[url]`` where it names one.

    >>> node_urls("redis://:secret@one:6379,two:6380/0")
    ['redis://:secret@one:6379/0', 'redis://:secret@two:6380/0']
    """
    parts = urlsplit(url)
    user, at, hosts = parts.netloc.rpartition("@")
    if "," not in hosts:
        return [url]
    return [parts._replace(netloc=f"{user}{at}{host.strip()}").geturl() for host in hosts.split(",")]


def node_url(url: str, host: str, port: int) -> str:
    """The URL of another node of the cluster that an address names.

    >>> node_url("rediss://me:secret@one:6379,two:6380/0?ssl_ca_certs=ca.pem", "::1", 7000)
    'rediss://me:secret@[::1]:7000/0?ssl_ca_certs=ca.pem'
    """
    parts = urlsplit(url)
    user, at, _ = parts.netloc.rpartition("@")
    shown = f"[{host}]" if ":" in host else host
    return parts._replace(netloc=f"{user}{at}{shown}:{port}").geturl()
