"""Embeddings as a user sees them: made by themselves, shown, moved to another model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.instance import WITH_MODEL, Instance, refold, running_instance, until
from tests.model_server import ModelServer, Reply, model_server

WISHES = (
    "Book flight HAT136 from Oslo at 10:40",
    "预订 5 月 20 日去西雅图的航班",
    "Cancel order W4423 of 12 chairs",
)


def vowels(body: dict[str, Any]) -> Reply:
    rows = [[text.count(letter) + 0.1 for letter in "aeiou"] for text in body["input"]]
    return Reply({"data": [{"index": n, "embedding": row} for n, row in enumerate(rows)]})


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server(vowels) as running:
        yield running


def embeddings(instance: Instance) -> list[tuple[Any, ...]]:
    items = instance.http.get("/v1/embeddings").json()["items"]
    return [(one["model"], one["state"], one["dimension"], one["vectors"], one["waiting"]) for one in items]


def publish(instance: Instance, *texts: str) -> None:
    instance.stored(*(instance.event(instance.name(), data={"role": "user", "content": text}) for text in texts))


def test_embeddings_are_made_shown_and_moved_to_another_model(tmp_path: Path, server: ModelServer) -> None:
    data = tmp_path / "data"
    with running_instance(data, **WITH_MODEL) as instance:
        publish(instance, *WISHES)
        until(lambda: embeddings(instance) == [("use-multilingual", "active", 512, 3, 0)])
        shown = instance.refold("status").stdout.decode()
        assert "use-multilingual\tactive\t512\t3\t0" in shown and "indexer\trunning\t0" in shown
    served = {"REFOLD_EMBEDDING_MODEL": "m-7", "REFOLD_EMBEDDING_URL": server.url, "REFOLD_EMBEDDING_KEY": "sesame"}
    with running_instance(data, **served) as instance:
        until(lambda: embeddings(instance)[0] == ("endpoint:m-7", "active", 5, 3, 0))
        assert embeddings(instance)[1] == ("use-multilingual", "retired", 512, 3, None)
    assert set(server.keys) == {"Bearer sesame"}
    doctor = refold("doctor", "--data", str(data), REFOLD_HTTP_PORT="0", **served).stdout.decode()
    assert "endpoint:m-7: active, 5 dimensions, 3 vectors, none missing" in doctor
    assert "use-multilingual: retired, 512 dimensions, 3 vectors, stale" in doctor
