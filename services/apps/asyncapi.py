"""The AsyncAPI description of everything that Refold listens to on Redis; ``python -m services.apps.asyncapi``.

Made offline: nothing is connected, and no page with foreign scripts or a try-out button is served.
"""

from __future__ import annotations

import sys
from typing import Any

from faststream.specification import AsyncAPI

from services.apps.inbox import inbox_app
from services.apps.wakeups import wakeup_app


def describe(redis_url: str = "redis://localhost:6379/0") -> dict[str, Any]:
    """The AsyncAPI 3.0 document."""
    brokers = [
        inbox_app(redis_url, None)[1],
        wakeup_app(redis_url, lambda _: None, consumer="projector")[1],
        wakeup_app(redis_url, lambda _: None, consumer="reactors")[1],
    ]
    document = AsyncAPI(*brokers, title="Refold", version="1", description="Ways into and out of the log's Redis.")
    return dict(document.to_specification().to_jsonable())


if __name__ == "__main__":
    import orjson

    sys.stdout.write(orjson.dumps(describe(), option=orjson.OPT_INDENT_2).decode() + "\n")
