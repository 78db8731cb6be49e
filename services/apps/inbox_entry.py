"""What an entry of the inbox may look like, and the raw events it holds. Pure.

* flat fields, as a plain ``XADD refold:inbox * id e1 type step.started run r1 data '{"step": "s1"}'`` makes them;
* one field ``__data__`` with the JSON of an event, or of a list of them;
* one field ``__data__`` in FastStream's binary envelope, as ``broker.publish(..., stream="refold:inbox")`` makes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from faststream.redis.parser import BinaryMessageFormatV1

from events import door
from events.errors import Refused

_DATA = b"__data__"


def read_entry(fields: Mapping[bytes, bytes]) -> list[Any]:
    """The raw events of one entry, not yet admitted. Raises Refused when the entry as a whole is unreadable."""
    if _DATA not in fields:
        return [door.read_fields({_text(name): _text(value) for name, value in fields.items()})]
    if len(fields) > 1:
        raise Refused("an entry holds `__data__` or flat fields, not both", code="bad_entry", field="__data__")
    body = fields[_DATA]
    if body.startswith(BinaryMessageFormatV1.IDENTITY_HEADER):
        body, _headers = BinaryMessageFormatV1.parse(body)
    return door.read_json(body)


def _text(raw: bytes) -> str:
    try:
        # surrogatepass, as in JSON text: a lone surrogate is read, and replaced by the door
        return raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise Refused(f"a field of the entry is not UTF-8: {error.reason}", code="bad_encoding") from error
