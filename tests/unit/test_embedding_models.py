"""Embedding models: rows that can be compared, whichever model and however loaded; what cannot be loaded says why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from events.errors import SetupError, Transient
from services.embedding.choice import Choice
from services.embedding.endpoint import EndpointModel
from services.embedding.model import LONGEST_TEXT, Embedder, unit_rows
from services.embedding.models import load
from tests.model_server import ModelServer, Reply, model_server, problem

TEXTS = ["Where is my flight to Boston?", "", "航班已取消", "  ", "e-mail ivan@example.com", "x" * (LONGEST_TEXT + 9)]


@pytest.fixture(scope="module")
def light() -> Embedder:
    return load(Choice(form="light"))


@given(arrays.arrays(np.float32, st.tuples(st.integers(1, 4), st.integers(1, 5)), elements=st.floats(width=32)))
def test_every_row_has_length_one_or_is_zero(raw: Any) -> None:
    """NaN, infinities, the largest and the smallest numbers."""
    rows = unit_rows(raw)
    lengths = np.linalg.norm(rows.astype(np.float64), axis=1)
    assert rows.dtype == np.float32 and np.isfinite(rows).all()
    assert all(abs(length - 1) < 1e-5 or length == 0 for length in lengths)
    whole = np.isfinite(raw).all(axis=1) & raw.any(axis=1)
    assert ((lengths > 0) == whole).all()


def test_the_default_model_needs_no_torch(light: Embedder) -> None:
    rows = light.embed(TEXTS)
    assert rows.shape == (6, light.dimension) == (6, 512)
    assert [bool(row.any()) for row in rows] == [True, False, True, False, True, True]
    assert (light.embed(["x" * LONGEST_TEXT])[0] == rows[5]).all()
    assert light.embed([]).shape == (0, 512)


def test_the_default_model_finds_meaning_across_languages(light: Embedder) -> None:
    told = ["The flight was cancelled because of snow", "我的护照下个月到期", "Ihr Paket kommt am Dienstag"]
    asked = ["航班因为下雪取消了", "my passport expires next month", "your parcel arrives on Tuesday"]
    likeness = light.embed(asked, query=True) @ light.embed(told).T
    assert likeness.argmax(axis=1).tolist() == [0, 1, 2]


def test_a_choice_says_what_its_vectors_are_kept_by(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "weights").write_bytes(b"one")
    first = Choice(str(folder)).name
    assert first.startswith("folder:mine@")
    (folder / "README.md").write_text("what is told of it makes no difference")
    assert Choice(str(folder)).name == first
    (folder / "weights").write_bytes(b"two")
    assert Choice(str(folder)).name != first
    assert Choice("m-7", "http://localhost:1/v1").name == "endpoint:m-7"
    assert Choice("owner/name").name == "owner/name"
    assert Choice(**Choice(str(folder)).source) == Choice(str(folder))


def test_embeddings_that_are_switched_off_cannot_be_loaded() -> None:
    with pytest.raises(SetupError, match="switched off"):
        load("none")


# --- an endpoint -----------------------------------------------------------------------------------------------------


def lengths(body: dict[str, Any]) -> Reply:
    """Two numbers a text, in another order than the texts', as an endpoint may answer."""
    items = [{"index": n, "embedding": [len(text), 1.0]} for n, text in enumerate(body["input"])]
    return Reply({"object": "list", "data": items[::-1], "model": body["model"]})


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server(lengths) as running:
        yield running


@pytest.fixture
def served(server: ModelServer) -> Iterator[EndpointModel]:
    model = EndpointModel("endpoint:m-7", "m-7", server.url, "sesame")
    yield model
    model.close()


def test_an_endpoint_is_asked_in_batches_for_what_is_not_blank(server: ModelServer, served: EndpointModel) -> None:
    texts = ["a" * (number % 50 + 1) for number in range(100)]
    rows = served.embed([*texts, "", " "])
    assert rows.shape == (102, 2) and not rows[100:].any()
    assert np.allclose(rows[:100, 0] / rows[:100, 1], [len(text) for text in texts], rtol=1e-4)
    assert [len(body["input"]) for body in server.requests] == [1, 64, 36]
    assert set(server.keys) == {"Bearer sesame"} and server.requests[1]["model"] == "m-7"


def test_an_endpoint_that_is_busy_is_asked_again(server: ModelServer, served: EndpointModel) -> None:
    server.plan = [problem(429), Reply({}, status=0)]
    assert served.embed(["abc"]).any()
    server.plan = [problem(503)] * 4
    with pytest.raises(Transient, match="503"):
        served.embed(["abc"])


def test_what_an_endpoint_does_not_take_needs_a_person(server: ModelServer, served: EndpointModel) -> None:
    server.plan = [problem(401)]
    with pytest.raises(SetupError, match="REFOLD_EMBEDDING_KEY"):
        served.embed(["abc"])
    server.plan = [Reply({"data": "none"})]
    with pytest.raises(SetupError, match="OpenAI-compatible"):
        served.embed(["abc"])
    server.plan = [lengths({"input": ["a", "b"], "model": "m"})]
    with pytest.raises(SetupError, match="2 vectors for 1 texts"):
        served.embed(["abc"])
    server.plan = [Reply({"data": [{"index": 0, "embedding": [1.0, 2.0, 3.0]}]})]
    with pytest.raises(SetupError, match="3 dimensions, before 2"):
        served.embed(["abc"])


def test_numbers_that_are_none_become_a_zero_row(server: ModelServer, served: EndpointModel) -> None:
    server.plan = [Reply({"data": [{"index": 0, "embedding": [float("nan"), 1.0]}, {"index": 1, "embedding": [0, 2]}]})]
    assert served.embed(["abc", "de"]).tolist() == [[0.0, 0.0], [0.0, 1.0]]
