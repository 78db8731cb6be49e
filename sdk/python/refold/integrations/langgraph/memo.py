"""The newest checkpoints, as this process last saw or made them: what need not be fetched again while it is unchanged.

The documents are those of the backend, and never changed in place.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from refold.integrations.langgraph.wire import Raw

MAX_BYTES = 64 << 20

Place = tuple[str, str]
"""Thread and namespace."""


class Memo:
    """Keeps the newest checkpoint of each namespace, up to ``MAX_BYTES`` of them; the least recently used go first."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._documents: OrderedDict[Place, tuple[Raw | None, int]] = OrderedDict()

    def holds(self, place: Place) -> bool:
        """Whether ``get`` can answer."""
        return place in self._documents

    def get(self, place: Place) -> Raw | None:
        """The checkpoint, or None for a namespace without one. Raises KeyError for a place it does not hold."""
        self._documents.move_to_end(place)
        return self._documents[place][0]

    def put(self, place: Place, document: Raw | None) -> None:
        """What the backend said."""
        self.drop(place)
        size = 200 if document is None else _size(document)
        if size > self._max_bytes // 4:
            return
        self._documents[place] = document, size
        self._bytes += size
        while self._bytes > self._max_bytes:
            _, (_, old) = self._documents.popitem(last=False)
            self._bytes -= old

    def drop(self, place: Place) -> None:
        """Forget one."""
        _, size = self._documents.pop(place, (None, 0))
        self._bytes -= size

    def drop_thread(self, thread: str) -> None:
        """Forget all of a thread."""
        for place in [place for place in self._documents if place[0] == thread]:
            self.drop(place)

    def advance(self, thread: str, data: Raw) -> None:
        """A checkpoint was saved. It is kept where all values that it takes over are known."""
        place = thread, data["namespace"]
        held = self.holds(place)
        before = self.get(place) if held else None
        new = {channel: packed for channel, _, *packed in data["values"]}
        if before is not None and before["checkpoint"] > data["checkpoint"]:
            return self.drop(place)
        values: dict[str, Any] = {}
        if len(new) < len(data["versions"]):
            if not held or (before is not None and before["checkpoint"] != data["parent"]):
                return self.drop(place)
            values = _unchanged(before, data["versions"]) if before else {}
        values.update(new)
        same = {name: data[name] for name in ("namespace", "checkpoint", "parent", "state", "versions", "metadata")}
        listed = [[channel, *packed] for channel, packed in values.items()]
        return self.put(place, {"thread": thread, **same, "more": data.get("more"), "values": listed, "writes": []})

    def write(self, thread: str, data: Raw) -> None:
        """Writes after a checkpoint were saved: at an index of 0 and up the first ones stay."""
        place = thread, data["namespace"]
        document = self.get(place) if self.holds(place) else None
        if document is None or document["checkpoint"] != data["checkpoint"]:
            return
        writes = {(write[0], write[2]): write for write in document["writes"]}
        for index, channel, *packed in data["writes"]:
            write = [data["writer"], data["path"], index, channel, *packed]
            if index < 0 or (data["writer"], index) not in writes:
                writes[data["writer"], index] = write
        ordered = sorted(writes.values(), key=lambda write: (write[1], write[0], write[2]))
        self.put(place, {**document, "writes": ordered})


def _unchanged(before: Raw, versions: Raw) -> dict[str, Any]:
    """The values of a checkpoint that the next one, with these versions, has too."""
    return {
        channel: packed
        for channel, *packed in before["values"]
        if channel in versions and before["versions"].get(channel) == versions[channel]
    }


def _size(document: Raw) -> int:
    values = sum(len(value[-1]) for value in document["values"]) + sum(len(write[-1]) for write in document["writes"])
    return 1000 + len(document["state"][1]) + values
