"""What saver and store share: where the backend is, reading documents and pages, handing events in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit
from urllib.request import getproxies

from refold.address import find, is_inbox
from refold.errors import NotFound, RefoldError, Unavailable
from refold.integrations.langgraph.courier import Courier
from refold.integrations.langgraph.direct import DirectTransport
from refold.options import own_folder
from refold.transport import Transport, connect

Raw = dict[str, Any]


class Backend:
    """One backend, for one organisation. ``timeout_s`` bounds every wait for it.

    Raises ValueError for the address of an inbox, which answers nothing.
    """

    def __init__(self, url: str | None, org: str, api_key: str, timeout_s: float) -> None:
        address = find(url)
        if is_inbox(address.url):
            raise ValueError("the inbox answers nothing: use the instance's address, http://HOST:PORT")
        org = org or os.environ.get("REFOLD_ORG", "")
        self._settings = (address.url, "durable", org, api_key, timeout_s)
        self._own_folder = partial(own_folder, address=address, org=org)
        self.timeout_s = timeout_s
        self._reading = self.connect()
        self.courier = Courier(self.connect, timeout_s)

    def document(self, path: str, **params: Any) -> Raw | None:
        """A document; None where there is none. Raises Unavailable when there is no answer."""
        try:
            document: Raw = self._reading.get(path, _given(params))
        except NotFound:
            return None
        return _whole(document)

    def page(self, path: str, cursor: str | None, **params: Any) -> tuple[list[Any], str | None]:
        """One page of a list, and the cursor of the next."""
        page = _whole(self._reading.get(path, _given({**params, "cursor": cursor})))
        return page["items"], page["next_cursor"]

    def pages(self, path: str, **params: Any) -> Iterator[Any]:
        """All items of a list."""
        cursor: str | None = None
        while True:
            items, cursor = self.page(path, cursor, **params)
            yield from items
            if cursor is None:
                return

    def close(self) -> None:
        """Send what was handed in, and let connections go."""
        self.courier.close()
        self._reading.close()

    def own_folder(self, folder: Path) -> Path:
        """Where in a folder what waits for this backend, and this organisation, is."""
        return self._own_folder(folder)

    def connect(self) -> Transport:
        """A new way to it."""
        url = self._settings[0]
        if url.startswith("http://") and (_is_local(url) or "http" not in getproxies()):
            return DirectTransport(*self._settings)
        return connect(*self._settings)


def _is_local(url: str) -> bool:
    return urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")


def thread_path(thread: str) -> str:
    """Where a thread is read."""
    return f"/v1/threads/{quote(thread, safe='')}"


def _whole(document: Raw) -> Raw:
    """What was read, unless something durable may lack in it: who goes on from an older state repeats work."""
    note = document.get("read")
    if note is None:
        return document
    if not note["reached"]:
        raise Unavailable(f"{note['generation']} has not folded yet what is durable: ask again, or see `refold status`")
    if note["incomplete"]:
        raise RefoldError(f"an event of this could not be folded into {note['generation']}: see `refold deadletters`")
    return document


def _given(params: Raw) -> Raw:
    return {name: value for name, value in params.items() if value is not None}
