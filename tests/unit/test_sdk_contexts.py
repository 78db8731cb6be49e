"""What the SDK asks for a context with."""

from __future__ import annotations

from typing import Any

import pytest
from refold.contexts import context_params


def test_what_is_given_is_asked_for_and_nothing_else() -> None:
    asked = context_params("t", "", {"max_tokens": 400, "parts": ["cards", "query"], "mode": "", "originals": ()})
    assert asked == {"task": "t", "max_tokens": 400, "parts": "cards,query"}


def test_a_budget_of_nothing_is_for_the_backend_to_refuse() -> None:
    assert context_params("t", "q", {"max_tokens": 0}) == {"task": "t", "query": "q", "max_tokens": 0}


def test_an_option_that_there_is_not_is_told() -> None:
    options: Any = {"budget": 300}
    with pytest.raises(TypeError, match=r"no option budget; there are max_tokens, parts"):
        context_params("t", "q", options)
