"""Where a backend is, and under which name its unsent events wait."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import orjson

DEFAULT_URL = "http://127.0.0.1:8321"


@dataclass(frozen=True)
class Address:
    """A backend's URL. ``place`` names the backend itself: it stays when an instance comes back at another port."""

    url: str
    place: str


def find(url: str | None = None) -> Address:
    """The address given, else ``REFOLD_URL``, else of the instance of the data folder, else ``DEFAULT_URL``.

    The data folder is ``REFOLD_DATA``, else ``.refold`` in the working directory.
    """
    named = url or os.environ.get("REFOLD_URL")
    if named:
        return Address(named, named)
    folder = Path(os.environ.get("REFOLD_DATA") or ".refold")
    return Address(_announced(folder) or DEFAULT_URL, str(folder.resolve()))


def shown(url: str) -> str:
    """A URL as it may be told: without the name and the password in it."""
    return re.sub(r"//[^/@]*@", "//", url)


def is_inbox(url: str) -> bool:
    """Whether the address is a Redis inbox. Raises ValueError for an address that is neither Redis nor HTTP."""
    if url.startswith(("redis://", "rediss://", "unix://")):
        return True
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{shown(url)!r} is no address of a backend: write http://HOST:PORT or redis://HOST:PORT")
    return False


def _announced(folder: Path) -> str:
    """What ``refold up`` wrote about itself; empty where it wrote nothing, or is not ready."""
    try:
        found = orjson.loads((folder / "instance.json").read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return ""
    url = found.get("url") if isinstance(found, dict) else None
    return url if isinstance(url, str) else ""
